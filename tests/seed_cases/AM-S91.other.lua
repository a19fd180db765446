-- expect: error[model-class] hf.class = 'LlamaForCausalLM' | models.gemma
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.gemma" "2-tiny",
  hf = { class = "LlamaForCausalLM", torch_dtype = "float32" },
  distributed = { tp_size = 2 },
}
