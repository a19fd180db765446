-- DeepSpeed with Liger's kernels in Hugging Face's models (liger_kernel's apply_liger_kernel_to_*, its defaults): norms
-- and rope are one kernel each, whose gradients lie in place; SwiGLU keeps what it reads and makes silu again; the
-- loss leaves the gradient in place of each chunk of logits.
local one, none = { kernels = 1, passes = 1 }, { kernels = 0, passes = 0 }
return require "runtimes.eager" { name = "deepspeed_liger", fitted = "fsdp1",
  ops = { rmsnorm = one, rmsnorm_grad = one, rope = one, rope_grad = one, silu = { kernels = 1, passes = 1, remade = true },
    xent_max = { kernels = 1, passes = 2 }, xent_pick = none, xent_sumexp = none,
    xent_sumexp_grad = none, xent_pick_grad = none } }
