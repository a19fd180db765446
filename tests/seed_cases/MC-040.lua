-- expect: error[tp-switched-off] NotImplementedError | #415
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  tp_function = "apply_tensor_parallel",
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
