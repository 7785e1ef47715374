/* test/models/commit.pml: the end of a step on devices whose streams run on after an abort (step_decide). No rank
 * applies a sum that was torn, and no two ranks are ever more than one step apart.
 *
 * A step of a rank is four calls in its stream:
 *   gradient  sums of communicator 0
 *   ends      sums of communicator 1: losses, norms, and the word `ok`: 1 unless `revoked` was set before
 *   decide    applies if the sum of ok is the world and `revoked` is still clear
 *   next      the step after it begins
 * A call that runs to its end needs the part of every rank. One that is aborted ends with anything, and may or may not
 * have given its part. Who finds a failure, a true one or not, sets `revoked` and then aborts both communicators, in
 * any order.
 *
 *   -DR= ranks  -DSTEPS=  -DALARMS= failures that are found  -DKILLS= ranks that die
 *
 * Mutants, each of which must fail:
 *   -DNO_OK    the word says 1 always
 *   -DNO_FLAG  `revoked` is not looked at when it is decided
 *   -DTWICE    no word in the sums: a second sum of ones says whether all came this far
 */
#define ALL ((1 << R) - 1)
#define has(mask, r) (((mask) >> (r)) & 1)

byte at[R], place[R], applied[R];                         /* the step, from 0; the call in it; steps applied */
byte gave[STEPS], right[STEPS];                           /* to the gradient: who, and who gave what is right */
byte ended[STEPS], ended_right[STEPS], said_ok[STEPS];    /* to the ends */
byte counted[STEPS];                                      /* TWICE: to the second sum */
byte dead, revoked, aborted0, aborted1, alarms, kills;    /* masks of ranks */
bool mine[R], ends[R], word[R];                           /* results: the sums are right; the word is the world */
bool clean[R];                                            /* every earlier step was applied */
byte r, a, low, high;

#define go_on place[r]++
#define apply applied[r]++; assert(ends[r] && applied[r] == at[r] + 1)

inline give_gradient() {
  if
  :: gave[at[r]] = gave[at[r]] | (1 << r); if :: clean[r] -> right[at[r]] = right[at[r]] | (1 << r) :: else fi
  :: has(aborted0, r) -> skip
  fi;
  go_on
}

inline give_ends() {
  if
  :: ended[at[r]] = ended[at[r]] | (1 << r);
    if :: mine[r] -> ended_right[at[r]] = ended_right[at[r]] | (1 << r) :: else fi;
#ifdef NO_OK
    said_ok[at[r]] = said_ok[at[r]] | (1 << r)
#else
    if :: !has(revoked, r) -> said_ok[at[r]] = said_ok[at[r]] | (1 << r) :: else fi
#endif
  :: has(aborted1, r) -> skip
  fi;
  go_on
}

inline decide() {
#if defined(NO_FLAG) || defined(TWICE)
  if :: word[r] -> apply :: else -> clean[r] = 0 fi;
#else
  if :: word[r] && !has(revoked, r) -> apply :: else -> clean[r] = 0 fi;
#endif
  go_on
}

inline step_on() {
  if
  :: place[r] == 0 -> give_gradient()
  :: place[r] == 1 ->
    if
    :: gave[at[r]] == ALL -> mine[r] = right[at[r]] == ALL; go_on
    :: has(aborted0, r) -> mine[r] = 0; go_on
    :: else
    fi
  :: place[r] == 2 -> give_ends()
  :: place[r] == 3 ->
    if
    :: ended[at[r]] == ALL -> ends[r] = ended_right[at[r]] == ALL && mine[r]; word[r] = said_ok[at[r]] == ALL; go_on
    :: has(aborted1, r) -> ends[r] = 0; if :: word[r] = 0 :: word[r] = 1 fi; go_on
    :: else
    fi
#ifdef TWICE
  :: place[r] == 4 ->
    if :: counted[at[r]] = counted[at[r]] | (1 << r) :: has(aborted1, r) -> skip fi;
    go_on
  :: place[r] == 5 ->
    if :: counted[at[r]] == ALL -> word[r] = 1; go_on :: has(aborted1, r) -> word[r] = 0; go_on :: else fi
#else
  :: place[r] == 4 || place[r] == 5 -> place[r] = 6
#endif
  :: place[r] == 6 -> decide()
  :: place[r] == 7 -> at[r]++; place[r] = 0; mine[r] = 0; ends[r] = 0; word[r] = 0
  fi
}

init {
  d_step { do :: r < R -> clean[r] = 1; r++ :: else -> break od; r = 0 }
  do
  :: atomic {
    select(r : 0 .. R - 1);
    if
    :: !has(dead, r) && at[r] < STEPS -> step_on()
    :: !has(dead, r) && !has(revoked, r) && alarms < ALARMS -> alarms++; revoked = revoked | (1 << r)
    :: has(revoked, r) && !has(dead, r) && !has(aborted0, r) -> aborted0 = aborted0 | (1 << r)
    :: has(revoked, r) && !has(dead, r) && !has(aborted1, r) -> aborted1 = aborted1 | (1 << r)
    :: !has(dead, r) && kills < KILLS -> kills++; dead = dead | (1 << r)
    :: skip
    fi;
    d_step {
      a = 0; low = 255; high = 0;
      do
      :: a < R ->
        if :: applied[a] < low -> low = applied[a] :: else fi;
        if :: applied[a] > high -> high = applied[a] :: else fi;
        a++
      :: else -> break
      od;
      assert(high - low <= 1);
      a = 0; low = 0; high = 0; r = 0
    }
  }
  od
}
