-- Sizes in miles-credit's model block that its model cannot have: one error each, named by the key that was written.
return require "dialects.credit" {
  world_size = 2,
  model = {
    type = "wxformer", image_height = 64, image_width = 4,
    dim = { 4, 8, 16, 32 }, dim_head = 4,
    padding_conf = { activate = true, mode = "earth", pad_lat = { 8 }, pad_lon = 6 },
    ff_dropout = "none",
  },
  trainer = { type = "era5-gen2", parallelism = { data = "ddp" } },
}
