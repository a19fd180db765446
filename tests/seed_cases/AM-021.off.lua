-- expect: ok parallel fsdp2(reshard but the last) | recomputed nothing
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { activation_checkpointing = false, activation_checkpointing_scope = "all" },
}
