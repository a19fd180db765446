-- expect: ok ranks 8
return require "dialects.automodel" {
  world_size = 8, seq_length = 512,
  model = require "models.qwen" "3-30b-a3b",
   distributed = { strategy = "fsdp2", tp_size = 1, cp_size = 1, pp_size = 1, ep_size = 8, sequence_parallel =
    false, activation_checkpointing = true, moe = { reshard_after_forward = false, ignore_router_for_ac = false
    }, pipeline = { pp_schedule = "interleaved1f1b", pp_microbatch_size = 2, round_virtual_stages_to_pp_multiple
    = "down", scale_grads_in_schedule = false, patch_inner_model = false, patch_causal_lm_model = false,
    layers_per_stage = 2 } },
   step_scheduler = { gc_every_steps = 10, global_batch_size = 256, local_batch_size = 4, ckpt_every_steps =
    1000, val_every_steps = 1000, num_epochs = 1, max_steps = 30 },
   optimizer = { _target_ = "torch.optim.Adam", betas = { 0.9, 0.999 }, eps = 1e-08, lr = 0.0001, weight_decay =
    0 },
}
