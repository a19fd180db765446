-- A plan with a style and a name that do not exist; heads that tp does not divide.
return require "dialects.automodel" {
  world_size = 8,
  seq_length = 64,
  model = require "models.llama" "tiny",
  distributed = {
    tp_size = 8,
    tp_plan = {
      ["model.layers.*.self_attn.q_proj"] = "colwise",
      ["model.layers.*.self_attn.q_prok"] = "colwise",
      ["model.layers.*.mlp.gate"] = "colwise",
      ["lm_head"] = "columnwise",
    },
    enable_async_tensor_parallel = true,
  },
}
