-- expect: ok parallel fsdp2(reshard but the last), compile(block)
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { enable_compile = true },
}
