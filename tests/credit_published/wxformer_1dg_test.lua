-- expect: error[unknown-word] Trainer type standard not supported
-- config/gen_1/applications/other_models/wxformer_1dg_test.yml
return require "dialects.credit" {
  world_size = 1, as = "original",
  model = {
    type = "wxformer", frames = 1, image_height = 192, image_width = 288, levels = 16, channels = 4,
    surface_channels = 7, input_only_channels = 3, output_only_channels = 0, patch_width = 1, patch_height = 1,
    frame_patch_size = 1, dim = { 64, 128, 256, 512 }, depth = { 2, 2, 8, 2 }, global_window_size = { 4, 4, 2, 1 },
    local_window_size = 3, cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, interp = true,
    padding_conf = { activate = true, mode = "earth", pad_lat = 48, pad_lon = 48 },
  },
  trainer = {
    type = "standard", mode = "none", cpu_offload = false, activation_checkpoint = true, amp = false,
    train_batch_size = 1, grad_accum_every = 1, grad_max_norm = 1.0, learning_rate = 0.0001, weight_decay = 0,
    epochs = 1, use_scheduler = true,
  },
}
