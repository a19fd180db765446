-- KempnerForge: FSDP2 and DTensor like torchtitan, with torchtitan's host times. On request, the
-- whole model is compiled. The loss does not cast bf16 logits, so log_softmax and both gradients
-- are bf16. RMSNorm saves its input and its output in fp32, so the residual sum that it reads is
-- not saved a second time (model/norm.py). PyTorch chooses the attention kernel: since 2.11,
-- cuDNN's on Hopper and Blackwell (sdp_utils.cpp: check_prefer_cudnn_attention; its cuDNN is newer
-- than 9.15). KempnerForge's own profile of April 2026 names this kernel
-- (benchmarks/profiling/13b_24gpu_profiling.md). Keys and values are repeated for each query head
-- (model/attention.py). The training loop keeps the logits during the backward pass
-- (scripts/train.py). Parameters and gradients are stored in bf16.

-- kind: source; the framework's modules and kernels, named at the head of the script
return require "runtimes.eager" { name = "kempnerforge", fitted = "torchtitan", reports = "allocated",
  reports_rank = "first", keeps_outputs = true, keeps_received = true,  -- PyTorch's pipeline stages keep them
  holds_logits = true, expands_kv = true, casts_gradients = true, starts_whole = true,
  attention = { "flash2", Hopper = "cudnn", Blackwell = "cudnn" },
  ops = { xent_max = { kernels = 2, passes = 3, saved = 2 },
    xent_sumexp_grad = { kernels = 2, passes = 2, scratch = 2 },
    rmsnorm = { kernels = 7, passes = 9, saved = 8, scratch = 4 }, add = { remade = true } } }
