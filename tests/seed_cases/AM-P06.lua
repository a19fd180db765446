-- expect: ok ranks 8
return require "dialects.automodel" {
  world_size = 8, seq_length = 512,
  model = require "models.llama" "3.2-1b",
   distributed = { strategy = "fsdp2", tp_size = 1, cp_size = 2, pp_size = 1, ep_size = 1, sequence_parallel =
    false, activation_checkpointing = false },
   step_scheduler = { global_batch_size = 8, local_batch_size = 1, max_steps = 10, ckpt_every_steps = 10,
    val_every_steps = 10 },
   optimizer = { _target_ = "torch.optim.AdamW", lr = 1e-05, betas = { 0.9, 0.999 }, eps = 1e-08, weight_decay =
    0.0 },
}
