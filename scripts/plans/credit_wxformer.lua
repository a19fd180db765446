-- The transformer of WXFormer as miles-credit would train it on one DGX A100: FSDP2 over 4 data ranks, tensor parallelism over 2 GPUs.
return require "dialects.credit" {
  cluster = require "clusters.dgx_a100" { nodes = 1 },
  model = require "models.wxformer" "base",
  seq_length = 1024,
  trainer = {
    parallelism = { data = "fsdp2", tensor = 2, domain = 1 },
    train_batch_size = 1, grad_accum_every = 4, amp = true, activation_checkpoint = true,
    learning_rate = 1e-3, weight_decay = 1e-5, grad_max_norm = 1.0,
  },
}
