/* test/models/vault.pml: snapshots in memory (trainer/checkpoint/vault.c, vault_share.c, vault_choose.c) of a state in
 * three parts, and machines that are lost at every moment: also a second one while the first loss is being healed. A
 * machine's memory, with the generations in it, is lost with it.
 *
 *   TRAINS -> CLEARS -> SAVES -> WRITTEN ... all have -> CLEARED ... all have -> GETS -> TRAINS
 *             a slot    own part                        a slot for the         the copy of the
 *                                                       copy                   machine before
 *
 * After a loss the others deal the parts anew. Each takes its own from wherever they are, of the newest step of which
 * all parts are there. When all have theirs, they save before the first step.
 *
 * Shown: after one loss there is such a step; so it is after another one, if the world between had saved. What a rank
 * goes on with is never put together of two steps.
 *
 *   -DSTEPS=  -DEVERY= steps between snapshots  -DLOSSES=
 *
 * Mutants, each of which must fail:
 *   -DNO_WAIT   nobody waits until all have saved
 *   -DNO_FIRST  a world does not save before its first step
 *   -DNO_MOVED  who has its parts saves, although others still look for theirs
 *   -DNEWEST    a snapshot overwrites the newest generation, not the older one
 *   -DNO_MARK   what is being overwritten counts as whole
 */
#define R 3
#define ALL 7
#define MOVES 0
#define MOVED 1
#define CLEARS 2
#define SAVES 3
#define WRITTEN 4
#define CLEARED 5
#define GETS 6
#define TRAINS 7

/* Of a machine: the steps applied; of two generations and two copies the step + 1 (0: not whole) and the parts. */
byte applied[R], phase[R];
byte own[R * 2], own_parts[R * 2], copy[R * 2], copy_parts[R * 2];
byte slot[R];                  /* that is being written */
byte alive = ALL, world = ALL; /* sets of machines */
byte first;                    /* the step with which this world began */
bool saved = 1;                /* this world has saved its first snapshot */
bool soon;                     /* a machine was lost before that, or while another one was */
byte losses, torn;             /* torn: own generations of which a part is overwritten, and that are not marked */
byte s, x; /* zero between two events */

#define has(mask, i) (((mask) >> (i)) & 1)
#define bit(i) (1 << (i))
#define size(m) (has(m, 0) + has(m, 1) + has(m, 2))
#define before(r) size(world & (bit(r) - 1))
#define parts(r) (size(world) == 3 -> bit(r) : (size(world) == 2 -> (before(r) -> 6 : 1) : 7))
#define last_of(m) (has(m, 2) -> 2 : (has(m, 1) -> 1 : 0))
#define below(r) (world & (bit(r) - 1))
#define previous(r) (below(r) -> last_of(below(r)) : last_of(world)) /* the copy of whose parts r keeps */

#define own_one(i, t) (own[i] == (t) -> own_parts[i] : 0)
#define copy_one(i, t) (copy[i] == (t) -> copy_parts[i] : 0)
#define of(r, t) (own_one(2 * r, t) | own_one(2 * r + 1, t) | copy_one(2 * r, t) | copy_one(2 * r + 1, t))
#define found(t) ((has(alive, 0) -> of(0, t) : 0) | (has(alive, 1) -> of(1, t) : 0) | (has(alive, 2) -> of(2, t) : 0))

/* Where a snapshot of step t - 1 goes, of two that hold a and b: vault_overwrites. */
#ifdef NEWEST
#define overwrites(a, b, t) (a >= b -> 0 : 1)
#else
#define overwrites(a, b, t) (a >= (t) -> 0 : (b < (t) && b > a -> 0 : 1))
#endif

/* Has each member come as far as this in the snapshot after `t` steps, or further? */
#ifdef NO_WAIT
#define all_at(t, p) 1
#else
#define one_at(i, t, p) (!has(world, i) || applied[i] > (t) || (applied[i] == (t) && phase[i] >= (p)))
#define all_at(t, p) (one_at(0, t, p) && one_at(1, t, p) && one_at(2, t, p))
#endif
#ifdef NO_MOVED
#define all_moved 1
#else
#define moved(i) (!has(world, i) || phase[i] != MOVES)
#define all_moved (moved(0) && moved(1) && moved(2))
#endif
#define gives(i, t) (!has(world, i) || applied[i] > (t) || (applied[i] == (t) && phase[i] == TRAINS))
#define whole (world == (world & alive))

#define place(r, k) (1 << (2 * (r) + (k)))
#ifdef NO_MARK
#define clear(held, r) slot[r] = overwrites(held[2 * r], held[2 * r + 1], applied[r] + 1); \
  torn = torn | place(r, slot[r])
#else
#define clear(held, r) slot[r] = overwrites(held[2 * r], held[2 * r + 1], applied[r] + 1); held[2 * r + slot[r]] = 0
#endif

#define has_saved(i, t) (own[2 * i] == (t) || own[2 * i + 1] == (t))
#define torn_one(i, k) (has(alive, i) && own[2 * i + k] == first + 1 && (torn & place(i, k)))
#define torn_at(i) (torn_one(i, 0) || torn_one(i, 1)) /* of the step that is read */

proctype rank(byte r) {
end:
  do
  :: atomic { has(alive, r) && whole && phase[r] == MOVES && (parts(r) & found(first + 1)) == parts(r) ->
      assert(!torn_at(0) && !torn_at(1) && !torn_at(2));
      applied[r] = first; phase[r] = MOVED }
  :: atomic { has(alive, r) && whole && phase[r] == MOVED && all_moved ->
#ifdef NO_FIRST
      phase[r] = TRAINS
#else
      phase[r] = CLEARS
#endif
    }
  :: atomic { has(alive, r) && whole && phase[r] == TRAINS && applied[r] < STEPS &&
      gives(0, applied[r]) && gives(1, applied[r]) && gives(2, applied[r]) ->
      applied[r] = applied[r] + 1;
      if :: applied[r] % EVERY == 0 -> phase[r] = CLEARS :: else fi }
  :: atomic { has(alive, r) && phase[r] == CLEARS -> clear(own, r); phase[r] = SAVES }
  :: atomic { has(alive, r) && phase[r] == SAVES ->
      own[2 * r + slot[r]] = applied[r] + 1; own_parts[2 * r + slot[r]] = parts(r); phase[r] = WRITTEN;
      torn = torn & ~place(r, slot[r]);
      if :: size(world) == 1 -> phase[r] = TRAINS; saved = 1 :: else fi }
  :: atomic { has(alive, r) && whole && phase[r] == WRITTEN && all_at(applied[r], WRITTEN) ->
      clear(copy, r); phase[r] = CLEARED }
  :: atomic { has(alive, r) && whole && phase[r] == CLEARED && all_at(applied[r], CLEARED) -> phase[r] = GETS }
  :: atomic { has(alive, r) && whole && phase[r] == GETS && has_saved(previous(r), applied[r] + 1) ->
      copy[2 * r + slot[r]] = applied[r] + 1; copy_parts[2 * r + slot[r]] = parts(previous(r)); phase[r] = TRAINS;
      if :: all_at(first, TRAINS) -> saved = 1 :: else fi }
  /* A machine is lost. */
  :: atomic { losses < LOSSES && has(alive, r) && size(alive) > 1 ->
      if :: !saved || !whole -> soon = 1 :: else fi;
      losses++; alive = alive & ~bit(r) }
  od
}

/* All who are left have left the world: the newest step of which every part is there. */
proctype healing() {
end:
  do
  :: atomic { !whole ->
      s = STEPS + 1;
      do :: s > 0 && found(s) != ALL -> s-- :: else -> break od;
      assert(s > 0 || soon);
      if
      :: s > 0 ->
        first = s - 1; world = alive; saved = 0; x = 0;
#ifdef NO_FIRST
        saved = 1;
#endif
        do :: x < R -> if :: has(alive, x) -> phase[x] = MOVES :: else fi; x++ :: else -> break od
      :: else -> world = 0; alive = 0 /* the disk's newest */
      fi;
      s = 0; x = 0 }
  od
}

/* All ranks that are left come to the end. */
proctype quiet() {
  timeout -> assert(!alive || (world == alive && (!has(alive, 0) || applied[0] == STEPS) &&
    (!has(alive, 1) || applied[1] == STEPS) && (!has(alive, 2) || applied[2] == STEPS)))
}

init {
  atomic {
    do
    :: x < R ->
      phase[x] = TRAINS; own[2 * x] = 1; own_parts[2 * x] = bit(x); copy[2 * x] = 1;
      copy_parts[2 * x] = (x == 0 -> 4 : bit(x - 1)); run rank(x); x++
    :: else -> break
    od;
    x = 0;
    run healing(); run quiet()
  }
}
