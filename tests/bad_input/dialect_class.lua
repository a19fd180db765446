return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { class = "MambaForCausalLM", torch_dtype = "float32" },
}
