-- expect: note[ac-dropped] here it is done
-- expect: ok parallel ac(modules), zero(optim_grads_params) | recomputed module 2/8, rmsnorm 4/4, attention 2/12
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "megatron_fsdp", activation_checkpointing = true },
}
