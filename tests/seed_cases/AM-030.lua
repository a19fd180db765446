-- expect: error[tp-plan-missing] is empty | tp_size = 2
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", num_attention_heads = 8, class = "UnknownForCausalLM", tp_plan = {} },
  distributed = { tp_size = 2 },
}
