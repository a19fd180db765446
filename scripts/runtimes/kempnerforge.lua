-- KempnerForge: FSDP2 and DTensor as torchtitan has them (whose host times are taken), whole models
-- compiled where asked for; its loss takes logits as they are, in bf16: log_softmax and both gradients are
-- as wide.
return require "runtimes.eager" { name = "kempnerforge", fitted = "torchtitan", reports = "allocated",
  reports_rank = "first", keeps_outputs = true, keeps_received = true,  -- PyTorch's stages
  ops = { xent_max = { kernels = 2, passes = 3, saved = 2 },
    xent_sumexp_grad = { kernels = 2, passes = 2, scratch = 2 } } }
