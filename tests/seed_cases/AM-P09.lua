-- expect: ok ranks 8
return require "dialects.automodel" {
  world_size = 8, seq_length = 512,
  model = require "models.llama" "3.1-8b",
   distributed = { strategy = "fsdp2", dp_size = "none", tp_size = 1, cp_size = 1, defer_fsdp_grad_sync = false,
    sequence_parallel = false },
   step_scheduler = { global_batch_size = 32, local_batch_size = 1, ckpt_every_steps = 200, val_every_steps =
    200, num_epochs = 1, max_steps = 100 },
   optimizer = { _target_ = "torch.optim.Adam", betas = { 0.9, 0.999 }, eps = 1e-08, lr = 1e-05, weight_decay =
    0 },
   fp8 = { enabled = true, recipe_name = "tensorwise", enable_fsdp_float8_all_gather = true,
    precompute_float8_dynamic_scale_for_fsdp = true, force_recompute_fp8_weight_in_bwd = true, filter_fqns = {
    "lm_head" }, emulate = false },
}
