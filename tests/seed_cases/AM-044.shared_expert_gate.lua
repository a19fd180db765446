-- expect: error[ep-owned] mlp.shared_expert_gate | EP-owned
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, tp_plan = { ["model.layers.*.mlp.shared_expert_gate"] = "colwise" } },
}
