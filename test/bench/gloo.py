#!/usr/bin/env python3
"""test/bench/gloo.py RANKS [quick]: what bench_comm measures, done with torch.distributed's gloo backend over the loopback device.

Same sizes, same type, same clock: from a barrier on, the slowest rank's time, median. Where gloo has no such
collective, the output says what took its place.
"""
import os, socket, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

QUICK = "quick" in sys.argv  # for tests
SIZES = [1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 64 << 20, 256 << 20][:2 if QUICK else None]
OPS = ["all_reduce", "reduce_scatter", "all_to_all", "message"]

def turns_for(n):
    return 5 if QUICK else 7 if n >= 64 << 20 else 41 if n >= 4 << 20 else 301 if n >= 64 << 10 else 1000

def pairwise(rank, world, src, dst):
    """All rows at once with non-blocking send and recv: what all_to_all is made of where a backend has none."""
    dst[rank].copy_(src[rank])
    work = [dist.irecv(dst[(rank - i) % world], (rank - i) % world) for i in range(1, world)]
    work += [dist.isend(src[(rank + i) % world], (rank + i) % world) for i in range(1, world)]
    for w in work:
        w.wait()

def there_and_back(rank, world, x, y):
    """Between two neighbours; with an odd number of ranks the last one has none."""
    peer = rank ^ 1
    if peer >= world:
        return
    if rank < peer:
        dist.send(x, peer)
    dist.recv(y, peer)
    if rank > peer:
        dist.send(x, peer)

def calls(rank, world, n):
    x, y = torch.ones(n // 4).zero_(), torch.ones(n // 4)  # pages of their own
    rows_x, rows_y = list(x.chunk(world)), list(y.chunk(world))
    def reduce_scatter():
        pairwise(rank, world, rows_x, rows_y)
        for r in range(world):
            if r != rank:
                rows_y[rank] += rows_y[r]
    def probe(f):
        try:
            f()
            return True
        except (RuntimeError, AttributeError):
            return False
    table = [("all_reduce", "all_reduce", lambda: dist.all_reduce(x))]
    native = lambda: dist.reduce_scatter(rows_y[rank], rows_x)
    table.append(("reduce_scatter", "reduce_scatter", native) if probe(native) else
                 ("reduce_scatter", "isend/irecv and add", reduce_scatter))
    native_all = lambda: dist.all_to_all_single(y, x)
    table.append(("all_to_all", "all_to_all_single", native_all) if probe(native_all) else
                 ("all_to_all", "isend/irecv", lambda: pairwise(rank, world, rows_x, rows_y)))
    table.append(("message", "send and recv", lambda: there_and_back(rank, world, x, y)))
    return table

def run(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    rows = []
    for n in SIZES:
        for op, how, f in calls(rank, world, n):
            t = torch.zeros(turns_for(n), dtype=torch.float64)
            for k in range(-2, len(t)):
                dist.barrier()
                start = time.perf_counter()
                f()
                if k >= 0:
                    t[k] = (time.perf_counter() - start) / (2 if op == "message" else 1)
            dist.all_reduce(t, op=dist.ReduceOp.MAX)
            rows.append((op, how, n, t.median().item()))
    if rank == 0:
        print(f"torch {torch.__version__} gloo, {world} ranks, loopback device")
        for op, how, n, s in sorted(rows, key=lambda r: (OPS.index(r[0]), r[2])):
            print(f"{op:16s} {n >> 10:10d} KB {s * 1e6:12.1f} us {n / s * 1e-9:9.3f} GB/s   {how}")
    dist.destroy_process_group()

if __name__ == "__main__":
    world = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(run, args=(world, port), nprocs=world)
