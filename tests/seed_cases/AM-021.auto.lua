-- expect: ok parallel ac(modules), fsdp2(reshard but the last) | recomputed module 2/8, rmsnorm 4/4, attention 2/12
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { activation_checkpointing = true, activation_checkpointing_scope = "auto" },
}
