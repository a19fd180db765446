-- expect: error[model-class] Qwen3NextForCausalLM | linear attention
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { class = "Qwen3NextForCausalLM", torch_dtype = "float32" },
}
