-- expect: error[divides-domain] image_height = 181 | domain = 2
-- config/gen_1/applications/domain_parallel/domain_parallel_test.yml
return require "dialects.credit" {
  world_size = 2, as = "original",
  model = {
    type = "wxformer", frames = 1, image_height = 181, image_width = 360, levels = 18, channels = 4,
    surface_channels = 4, input_only_channels = 3, output_only_channels = 8, patch_width = 1, patch_height = 1,
    frame_patch_size = 1, dim = { 32, 64, 128, 256 }, depth = { 2, 2, 2, 2 }, global_window_size = { 8, 4, 2, 1 },
    local_window_size = 4, cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, upsample_with_ps = true,
    use_spectral_norm = true, upsample_v_conv = true, decoder_attention_type = "scse", interp = false,
    padding_conf = { activate = true, mode = "earth", pad_lat = { 37, 38 }, pad_lon = { 76, 76 } },
    post_conf = { activate = false },
  },
  trainer = {
    type = "era5-gen1", mode = "domain_parallel", domain_parallel_size = 2, cpu_offload = false,
    activation_checkpoint = false, amp = false, train_batch_size = 2, grad_accum_every = 1, grad_max_norm = 1.0,
    learning_rate = 0.0001, weight_decay = 0, epochs = 1, use_scheduler = true,
  },
}
