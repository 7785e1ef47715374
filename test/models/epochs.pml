/* test/models/epochs.pml: what nodes and ranks do with the records (comm/team/council_next.c, trainer/node/): they
 * leave a world, meet in the next one, copy state and train, while more of them are lost. One rank a node, which holds
 * the whole state (ZeRO 0); test/models/vault.pml has parts. That there is one record of each number is shown by
 * votes.pml, so here a record is one event.
 *
 *   record decided ---> read by each node, early or late ---> OVER: its rank leaves what it is in, also a meeting
 *        ^                                                         |
 *        |                                                  MEETS: until all members of the epoch are there
 *   a loss is seen <--- WORKS: gives, applies <--- MOVES: state of the newest step that a member has
 *
 * Shown: no world has a rank of another run, or of two first steps; what is torn is never applied; who is left behind
 * applies at most the step that it was in, unless one of its world knows that it is over; a run ends as fruitless only
 * after as many losses, and does at a step that kills; each loss leads to a world in which all go on, or to the end:
 * nobody waits for ever.
 *
 *   -DN= nodes  -DK= records  -DSTEPS=
 *   -DDEATHS= supervisors that die; a new life may follow   -DORPHANS  their ranks may live on for a while, and meet
 *   -DKIDS= ranks that die alone   -DALARMS= failures that were none   -DLEAVERS= nodes that are asked to leave
 *   -DLEAST= members (min_ranks)   -DPOISON= a step that kills whoever computes it   -DSTAY  new lives stay away
 *
 * Mutants, each of which must fail:
 *   -DNO_OVER       only ranks that work are told that an epoch is over
 *   -DNO_FENCE      a rank is let in by the number of its epoch, not by its record's digest
 *   -DNO_TORN       a state that is being overwritten counts as whole
 *   -DNO_FRUITLESS  epochs without a step are not counted
 *   -DNO_SHORT      who has lost another one while all are to stop waits for the step at which they do
 *   -DNO_LIFE       a new life takes the place of the one before
 */
#define NONE 254
#define TORN 255
#define ALL ((1 << N) - 1)
#define LAST_TRY 4

#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef KIDS
#define KIDS 0
#endif
#ifndef ALARMS
#define ALARMS 0
#endif
#ifndef LEAVERS
#define LEAVERS 0
#endif
#ifndef LEAST
#define LEAST 1
#endif
#ifndef POISON
#define POISON 0
#endif

#define GONE 0  /* places of a rank: it has no process */
#define LEFT 1  /* waits for a record that names it */
#define MEETS 2 /* waits for the other members of its epoch */
#define MOVES 3 /* gets the state that all begin with */
#define WORKS 4
#define DONE 5
#define FORM 1 /* kinds of records */
#define HEAL 2
#define JOIN 3
#define DRAIN 4
#define SETTLE 5
#define STOP 6
#define END 7

/* The records of the run. `second`: all supervisors have died, and another run began. Sets of nodes are masks. */
byte kind[K + 1], epoch[K + 1], members[K + 1], voters[K + 1], lives[K + 1], high[K + 1], fruitless[K + 1];
byte start[K + 1]; /* the step that the ranks of an epoch begin with */
byte top;
bool second;

/* Nodes: those that run, in their second life, asked to leave, with a rank that failed, that began to work. */
byte up, life, leaving, failed, began;
byte newest[3], applied[3]; /* the newest record read; the highest step that its rank has applied */

/* A node's rank: the epoch that it is in; its state's step, the vault's, the disk's; the last step that it gave to. */
byte place[3], in[3], live[3], vault[3], disk[3], given[3];
byte unreal, late;  /* ranks whose state is not what it says; that applied a step after a later epoch did */
byte orphan[3];     /* the epoch in which a rank of the life before still meets; 0: there is none */
byte orphan_second; /* of the second run */

byte newest_epoch; /* that has applied a step */
byte deaths, kids, alarms, leavers, losses, stop_at;
byte m, q; /* zero between two events */

#define bit(i) (1 << (i))
#define has(mask, i) (((mask) >> (i)) & 1)
#define size(m) (has(m, 0) + has(m, 1) + has(m, 2))
#define lowest(m) ((m) & -(m))
#define enough(m, of) (2 * size((m) & (of)) > size(of) || (2 * size((m) & (of)) == size(of) && ((m) & lowest(of))))
#define max(a, b) ((a) > (b) -> (a) : (b))
#define most_of(m, x) max(has(m, 0) * x[0], max(has(m, 1) * x[1], has(m, 2) * x[2]))
#define held(x) ((x) >= NONE -> 0 : (x) + 1) /* 0: nothing; else one more than the step */

#ifdef NO_LIFE
#define same_life ALL
#else
#define same_life (ALL & ~(lives[top] ^ life))
#endif
#define living(set) ((set) & up & same_life)
#define in_it(i, e) (in[i] == (e) && place[i] >= MEETS && place[i] <= WORKS)
#define there(e) (in_it(0, e) | in_it(1, e) << 1 | in_it(2, e) << 2)
#define gave_one(i, e, t) (in[i] == (e) && given[i] > (t))
#define gave(e, t) (gave_one(0, e, t) | gave_one(1, e, t) << 1 | gave_one(2, e, t) << 2)
#define seal_one(i) (place[i] == WORKS && in[i] == epoch[top] && vault[i] != NONE && vault[i] >= start[epoch[top]])
#define sealed (members[top] == (members[top] & (seal_one(0) | seal_one(1) << 1 | seal_one(2) << 2)))
#define of_epoch(i) (in[i] == epoch[top])
#define in_top (of_epoch(0) | of_epoch(1) << 1 | of_epoch(2) << 2)
#define free_one(i) (place[i] == LEFT)
#define ready (up & ~leaving & (free_one(0) | free_one(1) << 1 | free_one(2) << 2))
#define lost (living(members[top]) != members[top] || (failed & in_top & members[top]))
#define done_one(i) (place[i] == DONE)
#define done (done_one(0) | done_one(1) << 1 | done_one(2) << 2)
#define can_decide enough(living(voters[top]) & ~done, voters[top])
#define ended (kind[top] == STOP || kind[top] == END)
#define may_follow (top && top < K && !ended)
#define rest (members[top] & ~leaving)

/* --- records ------------------------------------------------------------------------------------------------------ */

inline follow(what) {
  top++;
  kind[top] = what; epoch[top] = epoch[top - 1]; members[top] = members[top - 1]; voters[top] = voters[top - 1];
  lives[top] = lives[top - 1]; high[top] = high[top - 1]; fruitless[top] = fruitless[top - 1]; start[top] = NONE
}

/* An epoch of m begins. Those of `heard` tell how far the run is, and whether the epoch before began a step. */
inline begin_epoch(what, heard) {
  q = in_top & began & (heard);
  follow(what);
  high[top] = max(high[top], most_of(heard, applied));
  if
  :: high[top] > high[top - 1] -> fruitless[top] = 0; losses = 0
#ifndef NO_FRUITLESS
  :: high[top] == high[top - 1] && q && what == HEAL -> fruitless[top] = fruitless[top] + 1
#endif
  :: else
  fi;
  if
  :: fruitless[top] == LAST_TRY -> kind[top] = END; assert(losses >= LAST_TRY)
  :: else -> epoch[top] = top; members[top] = m; lives[top] = (lives[top] & ~m) | (life & m)
  fi;
  m = 0; q = 0
}

/* Who is left: any of those that are still there, since cables may be cut. Nobody is: any of those that have come. */
inline heal() {
  q = (living(members[top]) -> living(members[top]) : up);
  if :: m = q :: m = q & ~1 :: m = q & ~2 :: m = q & ~4 fi;
  if
  :: size(m) >= LEAST && m -> if :: begin_epoch(HEAL, up) :: begin_epoch(HEAL, m | (failed & in_top & up)) fi
  :: else -> m = q; if :: size(m) >= LEAST -> begin_epoch(HEAL, up) :: else fi
  fi;
  m = 0; q = 0
}

proctype council() {
end:
  do
  :: atomic { may_follow && lost && can_decide && size((living(members[top]) -> living(members[top]) : up)) >= LEAST ->
      heal() }
  :: atomic { may_follow && !lost && sealed && can_decide && (ready & ~members[top]) ->
      m = members[top] | ready; begin_epoch(JOIN, up) }
  :: atomic { may_follow && !lost && sealed && can_decide && voters[top] != members[top] ->
      follow(SETTLE); voters[top] = members[top] }
  :: atomic { may_follow && !lost && can_decide && rest != members[top] ->
      m = rest;
      if
      :: size(m) >= LEAST && m -> begin_epoch(DRAIN, up);
        if :: kind[top] == DRAIN -> voters[top] = members[top] :: else fi
      :: else -> follow(STOP); m = 0
      fi }
  /* All configured nodes, none of which has a record: a run begins. */
  :: atomic { second == 0 && up == ALL && life == ALL && !newest[0] && !newest[1] && (N < 3 || !newest[2]) ->
      second = 1; top = 1; newest_epoch = 0; stop_at = NONE; losses = 0;
      kind[1] = FORM; epoch[1] = 1; members[1] = ALL; voters[1] = ALL; lives[1] = life; high[1] = 0; fruitless[1] = 0;
      start[1] = NONE }
  od
}

/* --- what befalls them -------------------------------------------------------------------------------------------- */

#define falls(i) up = up & ~bit(i); losses++; failed = failed & ~bit(i); began = began & ~bit(i); \
  live[i] = NONE; vault[i] = NONE; newest[i] = 0; applied[i] = 0; place[i] = GONE

proctype chance(byte i) {
end:
  do
  :: atomic { deaths < DEATHS && has(up, i) && !has(life, i) && place[i] != DONE ->
      deaths++;
#ifdef ORPHANS
      if
      :: place[i] == MEETS -> orphan[i] = in[i]; orphan_second = orphan_second & ~bit(i) | second << i
      :: skip
      fi;
#endif
      falls(i) }
#ifndef STAY
  :: atomic { !has(up, i) && !has(life, i) ->
      up = up | bit(i); life = life | bit(i); place[i] = LEFT; in[i] = 0; given[i] = 0 }
#endif
  :: atomic { orphan[i] -> orphan[i] = 0 }
  :: atomic { kids < KIDS && has(up, i) && place[i] >= MEETS && place[i] != DONE ->
      kids++; losses++; place[i] = LEFT; live[i] = NONE; failed = failed | bit(i); unreal = unreal & ~bit(i) }
  :: atomic { alarms < ALARMS && has(up, i) && (place[i] == MOVES || place[i] == WORKS) ->
      alarms++; losses++; place[i] = LEFT; failed = failed | bit(i) }
  :: atomic { leavers < LEAVERS && has(up, i) && !has(leaving, i) -> leavers++; leaving = leaving | bit(i) }
  od
}

/* --- a node and its rank ------------------------------------------------------------------------------------------ */

#define my_epoch epoch[newest[i]]
#define named (newest[i] && has(members[newest[i]], i) && has(lives[newest[i]], i) == has(life, i))
/* Has a node of the epoch read that it is over? Then OVER is on its way. */
#define over_one(j, e) (has(members[e], j) && newest[j] && epoch[newest[j]] > (e))
#define known_over(e) (over_one(0, e) || over_one(1, e) || over_one(2, e))
#define lost_or_gone (lost || (members[top] & there(epoch[top])) != members[top])
#define has_it(j, t) (live[j] == (t) || vault[j] == (t) || disk[j] == (t))
#ifdef NO_FENCE
#define let_in(e) (members[e] & (there(e) | (orphan[0] == e) | (orphan[1] == e) << 1 | (orphan[2] == e) << 2))
#else
#define let_in(e) (members[e] & there(e))
#endif
#define giver(j, t) (in_it(j, in[i]) && has_it(j, t))

/* The rank leaves as it is: what was being overwritten is torn. */
#define leave place[i] = LEFT
#define work place[i] = WORKS; began = began | bit(i)

proctype node(byte i) {
end:
  do
  :: atomic { has(up, i) && newest[i] < top && (newest[i] || top > 1 || has(lives[1], i) == has(life, i)) ->
      if :: newest[i] = top :: newest[i] + 1 < top -> newest[i] = newest[i] + 1 fi }
#ifdef NO_OVER
  :: atomic { newest[i] && my_epoch > in[i] && place[i] == WORKS -> leave }
#else
  :: atomic { newest[i] && my_epoch > in[i] && place[i] >= MEETS && place[i] <= WORKS -> leave }
#endif
  :: atomic { place[i] == LEFT && named && my_epoch > in[i] && kind[newest[i]] != END ->
      in[i] = my_epoch; given[i] = 0; place[i] = MEETS; late = late & ~bit(i);
      failed = failed & ~bit(i); began = began & ~bit(i) }

  /* All are there: the newest step that one of them holds. What another rank holds is copied over the own state. */
  :: atomic { place[i] == MEETS && has(up, i) && let_in(in[i]) == members[in[i]] ->
      assert((members[in[i]] & there(in[i])) == members[in[i]]); /* not of another run */
      if
      :: start[in[i]] == NONE ->
        start[in[i]] = max(has(members[in[i]], 0) * max(held(live[0]), held(vault[0])),
                       max(has(members[in[i]], 1) * max(held(live[1]), held(vault[1])),
                           has(members[in[i]], 2) * max(held(live[2]), held(vault[2]))));
        if
        :: start[in[i]] == 0 -> start[in[i]] = most_of(members[in[i]], disk)
        :: else -> start[in[i]] = start[in[i]] - 1
        fi
      :: else
      fi;
      place[i] = MOVES;
      if
      :: live[i] == start[in[i]]
      :: else ->
#ifdef NO_TORN
        live[i] = start[in[i]]; unreal = unreal | bit(i)
#else
        live[i] = TORN
#endif
      fi }
  :: atomic { place[i] == MOVES && live[i] != start[in[i]] &&
      (vault[i] == start[in[i]] || giver(0, start[in[i]]) || giver(1, start[in[i]]) || giver(2, start[in[i]])) ->
      live[i] = start[in[i]] }
#ifdef NO_TORN
  :: atomic { place[i] == MOVES && has(unreal, i) && live[i] == start[in[i]] -> unreal = unreal & ~bit(i); work }
  :: atomic { place[i] == MOVES && !has(unreal, i) && live[i] == start[in[i]] -> work }
#else
  :: atomic { place[i] == MOVES && live[i] == start[in[i]] -> work }
#endif

  /* A step: it gives its part, and applies when all have given theirs. */
  :: atomic { place[i] == WORKS && live[i] < STEPS && given[i] <= live[i] && live[i] < stop_at &&
      live[i] + 1 != POISON ->
      given[i] = live[i] + 1;
      if :: newest[i] && kind[newest[i]] == STOP && stop_at == NONE -> stop_at = live[i] + 1 :: else fi }
  :: atomic { place[i] == WORKS && live[i] + 1 == POISON ->
      failed = failed | bit(i); place[i] = LEFT; live[i] = NONE; losses++ }
  :: atomic { place[i] == WORKS && given[i] == live[i] + 1 &&
      (members[in[i]] & gave(in[i], live[i])) == members[in[i]] ->
      assert(!has(unreal, i) && (!has(late, i) || known_over(in[i])));
      if
      :: in[i] < newest_epoch -> late = late | bit(i)
      :: else -> newest_epoch = in[i]
      fi;
      live[i] = live[i] + 1; applied[i] = max(applied[i], live[i]) }
  :: atomic { place[i] == WORKS && (vault[i] == NONE || vault[i] < live[i]) ->
      assert(!has(unreal, i)); vault[i] = live[i] }

  /* It notices that another one is not there any more; not while it meets. */
  :: atomic { (place[i] == MOVES || place[i] == WORKS) && (members[in[i]] & there(in[i])) != members[in[i]] &&
      !(place[i] == WORKS && (live[i] == STEPS || live[i] == stop_at)) ->
      leave; failed = failed | bit(i) }

  /* Ends: after the last step, or the one at which all stop; or with what it holds, when nothing more can follow. */
  :: atomic { place[i] == WORKS && (live[i] == STEPS || live[i] == stop_at) ->
      assert(!has(unreal, i)); disk[i] = live[i]; place[i] = DONE }
  :: atomic { newest[i] && place[i] != DONE && has(up, i) && (kind[newest[i]] == END ||
      (place[i] == LEFT || place[i] == MEETS) && (members[newest[i]] & done) ||
#ifndef NO_SHORT
      kind[newest[i]] == STOP && (place[i] == LEFT || place[i] == MEETS) && lost_or_gone ||
#endif
      kind[newest[i]] == STOP && !named && place[i] == LEFT) ->
      if
      :: live[i] < NONE && live[i] > disk[i] -> assert(!has(unreal, i)); disk[i] = live[i]
      :: else
      fi;
      place[i] = DONE }
  od
}

/* Nothing more happens: all members are done, or too few of the voters live, or there are no more records to decide. */
proctype quiet() {
  timeout ->
#ifdef MUST_END
    assert(kind[top] == END);
#endif
    assert(top == K || !can_decide || (living(members[top]) & ~done) == 0 ||
           (lost && size(living(members[top])) < LEAST))
}

init {
  atomic {
    up = ALL; stop_at = NONE;
    top = 1; kind[1] = FORM; epoch[1] = 1; members[1] = ALL; voters[1] = ALL; start[1] = NONE;
    do
    :: m < N -> place[m] = LEFT; live[m] = NONE; vault[m] = NONE; newest[m] = 1; run node(m); run chance(m); m++
    :: else -> break
    od;
    m = 0;
    run council(); run quiet()
  }
}
