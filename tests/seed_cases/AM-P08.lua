-- expect: ok ranks 8
return require "dialects.automodel" {
  world_size = 8, seq_length = 512,
  model = require "models.llama" "3.1-8b",
   distributed = { dp_size = 4, tp_size = 2, pp_size = 1, cp_size = 1, ep_size = "none", sequence_parallel =
    false },
   step_scheduler = { global_batch_size = 8, local_batch_size = 1, max_steps = 13, num_epochs = 2,
    val_every_steps = 12, ckpt_every_steps = 12 },
   optimizer = { _target_ = "torch.optim.Adam", lr = 5e-06, weight_decay = 0.01, betas = { 0.9, 0.999 }, eps =
    1e-08 },
   lr_scheduler = { lr_decay_style = "cosine", lr_warmup_steps = 0 },
}
