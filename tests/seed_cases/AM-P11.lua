-- expect: ok ranks 8
return require "dialects.automodel" {
  world_size = 8, seq_length = 512,
  model = require "models.gemma" "2-9b",
   distributed = { strategy = "fsdp2", activation_checkpointing = true, dp_size = "none", tp_size = 1, cp_size =
    1, sequence_parallel = false },
   step_scheduler = { global_batch_size = 64, local_batch_size = 4, ckpt_every_steps = 50, val_every_steps = 50,
    max_steps = 100 },
   optimizer = { _target_ = "torch.optim.Adam", betas = { 0.9, 0.999 }, eps = 1e-08, lr = 1e-05, weight_decay =
    0 },
}
