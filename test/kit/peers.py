# peers.py: what PyTorch does on this GPU, for the figures of lockstep beside it: products of GPT-2 124M's shapes, attention, a whole step.
# Markdown on standard output, in about four minutes. Random data everywhere. Ends with 69 where there is no PyTorch with a GPU.
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("peers.py: no PyTorch in this python3", file=sys.stderr)
    sys.exit(69)
if not torch.cuda.is_available():
    print("peers.py: PyTorch sees no GPU", file=sys.stderr)
    sys.exit(69)

B, T, C, H, V, L = 64, 1024, 768, 12, 50304, 12
dev = "cuda"
torch.manual_seed(1)


def random(*shape):
    return torch.randn(*shape, device=dev, dtype=torch.bfloat16)


def median_ms(call, rounds=20):
    for _ in range(3):
        call()
    times = []
    for _ in range(rounds):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        call()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return sorted(times)[len(times) // 2]


def products():
    rows = B * T
    print("\n| product, bf16 | m | n | k | ms | TFLOP/s |\n|---|---|---|---|---|---|")
    for name, n, k in (("qkv", 3 * C, C), ("proj", C, C), ("fc", 4 * C, C), ("out", C, 4 * C)):
        for what, m_, n_, k_, left, right in (
            ("forward", rows, n, k, (rows, k), (n, k)),
            ("dx", rows, k, n, (rows, n), (k, n)),
            ("dW", n, k, rows, (rows, n), (rows, k)),
        ):
            a, b = random(*left), random(*right)
            call = (lambda: a.t() @ b) if what == "dW" else (lambda: a @ b.t())
            ms = median_ms(call)
            print(f"| {name} {what} | {m_} | {n_} | {k_} | {ms:.3f} | {2e-9 * m_ * n_ * k_ / ms:.0f} |", flush=True)
    for what, left, right, transposed in (("head logits", (8192, C), (V, C), False), ("head dx", (8192, V), (C, V), False), ("head dW", (8192, V), (8192, C), True)):
        a, b = random(*left), random(*right)
        ms = median_ms((lambda: a.t() @ b) if transposed else (lambda: a @ b.t()))
        print(f"| {what} | | | | {ms:.3f} | {2e-9 * 8192 * V * C / ms:.0f} |", flush=True)


def attention():
    q, k, v = (random(B, H, T, C // H).requires_grad_() for _ in range(3))
    dy = random(B, H, T, C // H)
    forward = median_ms(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    backward = median_ms(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
    print(f"\nscaled_dot_product_attention {B} x {H} x {T} x {C // H}, causal: forward {forward:.3f} ms, backward {backward:.3f} ms", flush=True)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(C), torch.nn.LayerNorm(C)
        self.qkv, self.proj = torch.nn.Linear(C, 3 * C), torch.nn.Linear(C, C)
        self.fc, self.out = torch.nn.Linear(C, 4 * C), torch.nn.Linear(4 * C, C)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, H, C // H).transpose(1, 2) for z in self.qkv(self.ln_1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, C)
        x = x + self.proj(y)
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(V, C), torch.nn.Embedding(T, C)
        self.h, self.ln_f = torch.nn.ModuleList(Block() for _ in range(L)), torch.nn.LayerNorm(C)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(T, device=dev))
        for block in self.h:
            x = block(x)
        return F.cross_entropy((self.ln_f(x) @ self.wte.weight.t()).view(-1, V).float(), targets.view(-1))


def whole_step():
    net = GPT().to(dev)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(0, 50257, (2, B, T), device=dev)
    run = torch.compile(net)
    for micro in (B, B // 4, B // 8):
        def step():
            for at in range(0, B, micro):
                with torch.autocast(dev, dtype=torch.bfloat16):
                    loss = run(tokens[0, at : at + micro], tokens[1, at : at + micro]) * (micro / B)
                loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        try:
            since = time.time()
            ms = median_ms(step, 10)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            print(f"\nGPT-2 124M, {B} x {T}, micro-batches of {micro}: not enough memory", flush=True)
            continue
        print(f"\nGPT-2 124M, {B} x {T}, micro-batches of {micro}, compiled: {ms:.1f} ms, {1e3 * B * T / ms:.0f} tok/s ({time.time() - since:.0f} s)", flush=True)
        return


torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
print(f"# PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
products()
attention()
whole_step()
