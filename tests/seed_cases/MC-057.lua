-- expect: error[divides-domain] 960 padded rows | a multiple of 640
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = { name = "grid", build = (require "models.wxformer" "tiny").build,
    config = { image_height = 640, pad_rows = 320, local_window_size = 10, cross_embed_strides = { 4, 2, 2, 2 } } },
  trainer = { parallelism = { data = "fsdp2", tensor = 1, domain = 2 } },
}
