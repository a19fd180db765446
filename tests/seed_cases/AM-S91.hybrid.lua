-- expect: error[model-class] hf.class = 'NemotronHForCausalLM' | state spaces
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { class = "NemotronHForCausalLM", torch_dtype = "float32" },
}
