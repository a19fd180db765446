-- expect: ok parallel zero(optim_grads, eager, double buffer) | equal
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" "tiny",
  distributed = { strategy = "megatron_fsdp", zero_dp_strategy = 2, grad_reduce_in_fp32 = true,
    preserve_fp32_weights = true, fsdp_double_buffer = true },
}
