-- A padding that is negative on one side, and one that has only one side.
return require "dialects.credit" {
  world_size = 4,
  model = {
    type = "wxformer",
    padding_conf = { activate = true, mode = "mirror", pad_lat = { -160, 160 }, pad_lon = { 80 } },
  },
  trainer = { parallelism = { data = "ddp" } },
}
