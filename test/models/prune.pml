/* test/models/prune.pml: checkpoints on disks that no machines share (trainer/checkpoint/), and which are removed. Each
 * machine writes its own part and a copy of the part of the machine before, into a directory of another name. When all
 * have, each gives its directory the right name; and when all have done that, each removes the older one.
 * A machine that is lost does not come back, nor does its disk. The parts are then dealt anew.
 *
 * Shown: some checkpoint is complete over the disks that are left, after every loss, if a checkpoint was complete since
 * the one before.
 *
 *   -DC= checkpoints  -DLOSSES=
 *
 * Mutants, each of which must fail:
 *   -DEARLY    the older one is removed when the newer one is complete, whether or not all directories have their names
 *   -DNO_COPY  no copy of the part of the machine before
 */
#define R 3
#define ALL 7
#define WRITES 0
#define COPIES 1
#define WAITS 2
#define NAMED 3

/* Of a machine: the checkpoint it saves, and how far that is; the parts in each directory that has the right name. */
byte at[R], phase[R], parts_in[R * (C + 1)];
byte alive = ALL, world = ALL, losses;
bool lost_since;       /* a machine was lost since every member named a checkpoint; soon: another one, too */
bool soon;
byte c, x;             /* zero between two events */

#define has(mask, i) (((mask) >> (i)) & 1)
#define bit(i) (1 << (i))
#define size(m) (has(m, 0) + has(m, 1) + has(m, 2))
#define before(r) size(world & (bit(r) - 1))
#define parts(r) (size(world) == 3 -> bit(r) : (size(world) == 2 -> (before(r) -> 6 : 1) : 7))
#define last_of(m) (has(m, 2) -> 2 : (has(m, 1) -> 1 : 0))
#define below(r) (world & (bit(r) - 1))
#define previous(r) (below(r) -> last_of(below(r)) : last_of(world))
#define whole (world == (world & alive))
#define on(i, c) parts_in[(i) * (C + 1) + (c)]
#define over(set, c) ((has(set, 0) -> on(0, c) : 0) | (has(set, 1) -> on(1, c) : 0) | (has(set, 2) -> on(2, c) : 0))
#define waits(i, c) (!has(world, i) || at[i] > (c) || (at[i] == (c) && phase[i] >= WAITS))
#define all_wait(c) (waits(0, c) && waits(1, c) && waits(2, c))
#define one_named(i, c) (!has(world, i) || at[i] > (c) || (at[i] == (c) && phase[i] == NAMED))

#define all_named(c) (one_named(0, c) && one_named(1, c) && one_named(2, c))
#ifdef EARLY
#define may_remove(c) (over(world, c) == ALL)
#else
#define may_remove(c) all_named(c)
#endif

proctype machine(byte r) {
end:
  do
  :: atomic { has(alive, r) && whole && phase[r] == WRITES && at[r] <= C -> phase[r] = COPIES }
  :: atomic { has(alive, r) && whole && phase[r] == COPIES -> phase[r] = WAITS }
  :: atomic { has(alive, r) && whole && phase[r] == WAITS && all_wait(at[r]) ->
#ifdef NO_COPY
      on(r, at[r]) = parts(r);
#else
      on(r, at[r]) = parts(r) | parts(previous(r));
#endif
      phase[r] = NAMED;
      if :: all_named(at[r]) -> lost_since = 0 :: else fi }
  /* The next one begins when all have named this one: the ranks agree before. */
  :: atomic { has(alive, r) && whole && phase[r] == NAMED && at[r] < C && all_named(at[r]) ->
      at[r] = at[r] + 1; phase[r] = WRITES }
  :: atomic { has(alive, r) && phase[r] == NAMED && may_remove(at[r]) && on(r, at[r] - 1) ->
      on(r, at[r] - 1) = 0 }
  :: atomic { losses < LOSSES && has(alive, r) && size(alive) > 1 ->
      losses++; alive = alive & ~bit(r);
      if :: lost_since -> soon = 1 :: else fi;
      lost_since = 1;
      c = 0;
      do :: c < C && over(alive, c) != ALL -> c++ :: else -> break od;
      assert(over(alive, c) == ALL || soon);
      c = 0 }
  od
}

/* Those who are left go on from the newest that is complete; what is not finished is removed. */
proctype healing() {
end:
  do
  :: atomic { !whole && !soon ->
      world = alive; c = C;
      do :: c > 0 && over(alive, c) != ALL -> c-- :: else -> break od;
      x = 0;
      do
      :: x < R ->
        if
        :: has(alive, x) -> at[x] = c + 1; phase[x] = WRITES; if :: c < C -> on(x, c + 1) = 0 :: else fi
        :: else
        fi;
        x++
      :: else -> break
      od;
      c = 0; x = 0 }
  od
}

init {
  atomic {
    do
    :: x < R -> at[x] = 1; on(x, 0) = bit(x) | (x == 0 -> 4 : bit(x - 1)); run machine(x); x++
    :: else -> break
    od;
    x = 0;
    run healing()
  }
}
