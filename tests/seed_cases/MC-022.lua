-- expect: error[divides-domain] image_height = 8 | domain = 3
return require "dialects.credit" {
  world_size = 6, seq_length = 16,
  model = { name = "grid", config = { image_height = 8 }, build = (require "models.wxformer" "tiny").build },
  trainer = { parallelism = { data = "fsdp2", tensor = 1, domain = 3 } },
}
