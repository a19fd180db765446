-- expect: error[unknown-word] mfsdp2 | did you mean 'fsdp2'
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "mfsdp2" },
}
