-- expect: note[model-class] hf.class = 'BrandNewForCausalLM' is not known | LlamaForCausalLM
-- expect: ok ranks 2
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { class = "BrandNewForCausalLM", torch_dtype = "float32" },
}
