-- expect: error[units-empty] divided by their number, 0
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" "tiny",
  distributed = { strategy = "megatron_fsdp", megatron_fsdp_unit_modules = {} },
}
