-- expect: error[unknown-key] Unknown options for strategy 'fsdp2' | no_such_option
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { no_such_option = 1 },
}
