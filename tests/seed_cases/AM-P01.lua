-- expect: ok ranks 8
return require "dialects.automodel" {
  world_size = 8, seq_length = 512,
  model = require "models.llama" "3.2-1b",
   distributed = { strategy = "fsdp2", dp_size = "none", tp_size = 1, cp_size = 1 },
   step_scheduler = { global_batch_size = 64, local_batch_size = 8, ckpt_every_steps = 1000, val_every_steps =
    10, num_epochs = 1 },
   optimizer = { _target_ = "torch.optim.Adam", betas = { 0.9, 0.999 }, eps = 1e-08, lr = 1e-05, weight_decay =
    0 },
   lr_scheduler = { lr_decay_style = "cosine", min_lr = 1e-06 },
   clip_grad_norm = { max_norm = 1.0 },
}
