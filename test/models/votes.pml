/* test/models/votes.pml: the chain of records (comm/team/council_vote.c). Record k + 1 is decided by one vote among the
 * voters of record k. There are never two records of one number, and no run begins beside one that may still train.
 *
 * What was sent is a set that only grows. So loss, delay, repetition, reordering and cables that are cut, also in one
 * direction, are all the same thing: a message that is not received, or not yet.
 *
 *   -DN=     nodes                -DDEATHS=   supervisors that die; a new life follows, without memory
 *   -DK=     records that follow  -DCRASHES=  councils that die alone; the next one has the vote page
 *   -DB=     ballots of each record; ballot b is node b % N's
 *
 * Mutants, each of which must fail:
 *   -DNO_PAGE  a council that starts again has forgotten its votes
 *   -DNO_LIFE  a new life votes for the one before
 *   -DTIE      any half of the voters is enough
 *   -DCOLD     more than half of the configured nodes may begin a run
 */
#define NONE 255
#define ALL ((1 << N) - 1)
#define BALLOTS ((K + 1) * B)
#define I(k, b) ((k) * B + (b))
#define has(mask, i) (((mask) >> (i)) & 1)

byte members[K + 1], voters[K + 1], lives[K + 1]; /* of a record; bit i of lives: node i's second life */
bool decided[K + 1];
byte newest[N], life[N], promised[N], accepted[N]; /* of a node; promised, accepted: a ballot + 1 of the next record */
bool prepared[BALLOTS], asked[BALLOTS];            /* PREPARE, ACCEPT were sent */
bool own[BALLOTS];                                 /* its proposer lives, and remembers it */
byte promises[BALLOTS], had[BALLOTS * N];          /* PROMISE: who; what each had accepted */
byte want_members[BALLOTS], want_voters[BALLOTS], want_lives[BALLOTS]; /* ACCEPT's record */
byte accepts[BALLOTS];                             /* ACCEPTED: who */
byte deaths, crashes;
bool cold;
byte i, k, b, q, v, count, all, best, x, y, lowest, j, ok; /* zero between two events */

/* ok = are the nodes of `set` enough of those `among` which they vote? More than half, or half with the lowest. */
inline enough(set, among) {
  count = 0; all = 0; lowest = NONE; j = 0;
  do
  :: j < N ->
    if
    :: has(among, j) ->
      all++;
      if :: lowest == NONE -> lowest = j :: else fi;
      if :: has(set, j) -> count++ :: else fi
    :: else
    fi;
    j++
  :: else -> break
  od;
#ifdef TIE
  ok = 2 * count >= all
#else
  ok = 2 * count > all || (2 * count == all && has(set, lowest))
#endif
}

/* Does node i vote on what follows record k? */
#ifdef NO_LIFE
#define votes(i, k) (has(voters[k], i))
#else
#define votes(i, k) (has(voters[k], i) && has(lives[k], i) == life[i])
#endif

inline forget_own() {
  j = 0;
  do
  :: j < BALLOTS -> if :: (j % B) % N == i -> own[j] = 0 :: else fi; j++
  :: else -> break
  od;
  skip
}

/* ok = may a world of record r still apply a step? All its members live, in the lives it names, and are not past it. */
inline trains(r) {
  ok = decided[r]; j = 0;
  do
  :: j < N ->
    if :: has(members[r], j) && !(newest[j] == r && has(lives[r], j) == life[j]) -> ok = 0 :: else fi;
    j++
  :: else -> break
  od
}

inline promise() {
  promised[i] = b + 1;
  promises[I(k, b)] = promises[I(k, b)] | (1 << i);
  had[I(k, b) * N + i] = accepted[i]
}

/* The proposer asks for what one of `q`, who promised, has accepted in the highest ballot; else for what it likes. */
inline ask() {
  select(q : 1 .. ALL);
  skip;
  d_step {
    ok = (q & promises[I(k, b)]) == q;
    if :: ok -> enough(q, voters[k - 1]) :: else fi;
    best = 0; x = 0;
    do
    :: x < N ->
      if :: has(q, x) && had[I(k, b) * N + x] > best -> best = had[I(k, b) * N + x] :: else fi;
      x++
    :: else -> break
    od;
    skip
  }
  if
  :: ok && best -> d_step {
      want_members[I(k, b)] = want_members[I(k, best - 1)];
      want_voters[I(k, b)] = want_voters[I(k, best - 1)];
      want_lives[I(k, b)] = want_lives[I(k, best - 1)];
      asked[I(k, b)] = 1
    }
  :: ok && !best ->
    if :: k == K -> if :: v = 1 :: v = 2 fi :: else -> select(v : 1 .. ALL) fi; /* any members */
    y = 0; x = 0;
    do :: x < N -> y = y | (life[x] << x); x++ :: else -> break od;
    if :: y = lives[k - 1] :: y != lives[k - 1] && k < K -> skip fi; /* as they are, or as they were */
    want_members[I(k, b)] = v; want_lives[I(k, b)] = y; asked[I(k, b)] = 1;
    if /* a HEAL keeps the voters; SETTLE makes the members vote */
    :: k < K && v != voters[k - 1] ->
      want_voters[I(k, b)] = voters[k - 1];
      want_lives[I(k, b)] = (y & v) | (lives[k - 1] & (ALL - v))
    :: want_voters[I(k, b)] = v
    fi
  :: else -> skip
  fi
}

inline accept() {
  promised[i] = b + 1; accepted[i] = b + 1;
  d_step { accepts[I(k, b)] = accepts[I(k, b)] | (1 << i); enough(accepts[I(k, b)], voters[k - 1]) }
  if
  :: ok && !decided[k] -> d_step {
      decided[k] = 1;
      members[k] = want_members[I(k, b)]; voters[k] = want_voters[I(k, b)]; lives[k] = want_lives[I(k, b)]
    }
  :: ok && decided[k] -> /* one history */
    assert(members[k] == want_members[I(k, b)] && voters[k] == want_voters[I(k, b)] && lives[k] == want_lives[I(k, b)])
  :: else -> skip
  fi
}

/* A node without a record begins a run: only if nobody can train. */
inline begin_run() {
  d_step {
    q = 0; x = 0;
    do :: x < N -> if :: newest[x] == NONE -> q = q | (1 << x) :: else fi; x++ :: else -> break od;
#ifdef COLD
    enough(q, ALL);
#else
    ok = q == ALL;
#endif
    cold = ok;
    if
    :: cold -> x = 0; do :: x <= K -> trains(x); assert(!ok); x++ :: else -> break od
    :: else
    fi;
    skip
  }
}

init {
  d_step { members[0] = ALL; voters[0] = ALL; decided[0] = 1 }
  do
  :: cold -> break
  :: else -> atomic {
    select(i : 0 .. N - 1);
    if
    :: newest[i] != NONE && newest[i] < K && votes(i, newest[i]) ->
      k = newest[i] + 1;
      select(b : 0 .. B - 1);
      if
      :: b % N == i && !prepared[I(k, b)] && b + 1 > promised[i] -> prepared[I(k, b)] = 1; own[I(k, b)] = 1; promise()
      :: prepared[I(k, b)] && b + 1 > promised[i] -> promise()
      :: b % N == i && own[I(k, b)] && !asked[I(k, b)] && promises[I(k, b)] -> ask()
      :: asked[I(k, b)] && b + 1 >= promised[i] && accepted[i] != b + 1 -> accept()
      :: else -> skip
      fi
    :: select(k : 1 .. K); /* the news of a record */
      if
      :: decided[k] && (newest[i] == NONE || newest[i] < k) -> newest[i] = k; promised[i] = 0; accepted[i] = 0
      :: else -> skip
      fi
    :: deaths < DEATHS && !life[i] -> d_step {
        deaths++; life[i] = 1; promised[i] = 0; accepted[i] = 0; forget_own();
#ifndef NO_LIFE
        newest[i] = NONE
#endif
      }
    :: crashes < CRASHES -> d_step {
        crashes++; forget_own();
#ifdef NO_PAGE
        promised[i] = 0; accepted[i] = 0
#endif
      }
    :: newest[i] == NONE -> begin_run()
    :: skip
    fi;
    d_step {
      i = 0; k = 0; b = 0; q = 0; v = 0; count = 0; all = 0; best = 0; x = 0; y = 0; lowest = 0; j = 0; ok = 0
    }
  }
  od
}
