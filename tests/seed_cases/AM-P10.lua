-- expect: ok ranks 16
return require "dialects.automodel" {
  world_size = 16, seq_length = 512,
  model = require "models.llama" "3.1-70b",
   distributed = { strategy = "fsdp2", dp_size = "none", tp_size = 4, cp_size = 1, pp_size = 2,
    sequence_parallel = false, activation_checkpointing = true, mp_policy = { param_dtype = "bfloat16",
    reduce_dtype = "float32", output_dtype = "bfloat16", cast_forward_inputs = true }, pipeline = { pp_schedule
    = "interleaved1f1b", pp_microbatch_size = 1, layers_per_stage = 4, round_virtual_stages_to_pp_multiple =
    "up", scale_grads_in_schedule = false, dtype = "bf16" } },
   step_scheduler = { global_batch_size = 32, local_batch_size = 2, ckpt_every_steps = 50, val_every_steps =
    1000, max_steps = 100 },
   optimizer = { _target_ = "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam", lr = 1e-05, betas = {
    0.9, 0.999 }, weight_decay = 0, adam_w_mode = true, bias_correction = true, master_weights = true,
    store_param_remainders = true, exp_avg_dtype = "torch.float32", exp_avg_sq_dtype = "torch.float32" },
   lr_scheduler = { lr_decay_style = "cosine", min_lr = 1e-06 },
}
