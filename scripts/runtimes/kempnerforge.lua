-- KempnerForge: FSDP2 and DTensor as torchtitan has them (whose host times are taken), whole models
-- compiled where asked for; its loss takes logits as they are, in bf16: log_softmax and both gradients are
-- as wide. RMSNorm saves its input and its output in fp32, so nobody saves the residual sum that it reads
-- (model/norm.py); keys and values are repeated for each query head (model/attention.py); the loop holds the
-- logits while it goes backward (scripts/train.py); parameters are bf16 at rest and their gradients as well.
return require "runtimes.eager" { name = "kempnerforge", fitted = "torchtitan", reports = "allocated",
  reports_rank = "first", keeps_outputs = true, keeps_received = true,  -- PyTorch's stages
  holds_logits = true, expands_kv = true, casts_gradients = true, starts_whole = true,
  ops = { xent_max = { kernels = 2, passes = 3, saved = 2 },
    xent_sumexp_grad = { kernels = 2, passes = 2, scratch = 2 },
    rmsnorm = { kernels = 7, passes = 9, saved = 8, scratch = 4 }, add = { remade = true } } }
