-- NeMo Automodel with Hugging Face's models and Liger's kernels in them, its default without tensor and context
-- parallelism (_transformers: use_liger_kernel; FlashAttention-2 or PyTorch's own): norms and rope are one kernel each,
-- gradients of norms one and a small sum, SwiGLU keeps what it reads and makes silu again. The model is called without
-- labels, so Liger's fused loss is not: logits are taken to fp32 (loss/masked_ce.py: fp32_upcast). FSDP2 and DTensor:
-- torchtitan's host times. No published run was compared with it.
local one = { kernels = 1, passes = 1 }
return require "runtimes.eager" { name = "automodel", fitted = "torchtitan", casts_gradients = true,
  ops = { rmsnorm = { kernels = 1, kernel = "triton" }, rmsnorm_grad = { kernels = 2, kernel = "triton" },
    rope = one, rope_grad = one, silu = { kernels = 1, passes = 1, remade = true } } }
