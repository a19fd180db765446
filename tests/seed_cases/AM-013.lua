-- expect: error[unknown-word] Unknown strategy: unknown | megatron_fsdp
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "unknown" },
}
