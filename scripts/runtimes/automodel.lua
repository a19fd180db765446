-- NeMo Automodel with Hugging Face's models and Liger's kernels: its default without tensor and
-- context parallelism (_transformers: use_liger_kernel). Attention is FlashAttention-2 or PyTorch's
-- own. Norms and rope are one kernel each. The gradient of a norm is one kernel and a small sum.
-- SwiGLU is one kernel in each direction; it saves its inputs and computes silu again. The model is
-- called without labels, so Liger's fused loss is not used: logits are cast to fp32
-- (loss/masked_ce.py: fp32_upcast). The host times of FSDP2 and DTensor are torchtitan's. No
-- published run was compared with this profile.

-- kind: source; the framework's modules and kernels, named at the head of the script
local one = { kernels = 1, passes = 1 }
return require "runtimes.eager" { name = "automodel", fitted = "torchtitan", casts_gradients = true,
  ops = { rmsnorm = { kernels = 1, kernel = "triton" }, rmsnorm_grad = { kernels = 2, kernel = "triton" },
    rope = one, rope_grad = one, silu = { kernels = 0, passes = 0, remade = true }, silu_grad = { kernels = 0, passes = 0 } } }
