-- Llama-3.1-8B with the keys of a NeMo Automodel recipe: two DGX H100, tensor and sequence parallelism over pairs of GPUs.
return require "dialects.automodel" {
  cluster = require "clusters.dgx_h100" { nodes = 2 },
  model = require "models.llama" "3.1-8b",
  hf = { torch_dtype = "float32" },
  seq_length = 8192,
  step_scheduler = { global_batch_size = 64, local_batch_size = 1, max_steps = 1000 },
  distributed = {
    strategy = "fsdp2", tp_size = 2, sequence_parallel = true, activation_checkpointing = true,
  },
  optimizer = { _target_ = "torch.optim.AdamW", lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
}
