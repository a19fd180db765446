-- expect: ok ranks 8
return require "dialects.automodel" {
  world_size = 8, seq_length = 512,
  model = require "models.llama" "3.1-8b",
   distributed = { strategy = "fsdp2", dp_size = "none", dp_replicate_size = "none", tp_size = 1, cp_size = 1,
    pp_size = 2, ep_size = 1, pipeline = { pp_schedule = "interleaved1f1b", pp_microbatch_size = 4,
    scale_grads_in_schedule = false } },
   step_scheduler = { global_batch_size = 256, local_batch_size = 32, ckpt_every_steps = 200, val_every_steps =
    100, num_epochs = 2 },
   optimizer = { _target_ = "torch.optim.Adam", betas = { 0.9, 0.999 }, eps = 1e-08, lr = 1e-05, weight_decay =
    0 },
}
