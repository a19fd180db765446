-- expect: ok ranks 2 | parameters 34289920 | equal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 256, n_layers = 4, n_heads = 4, n_kv_heads = 2, vocab_size = 50257, norm_type = "rmsnorm",
    activation = "silu", max_seq_len = 576, num_experts = 4, moe_frequency = 2 },
  vision_encoder = { type = "random", feature_dim = 384, num_tokens = 64 },
  vlm = { arch = "cross_attention", cross_attention_every_n_layers = 2 },
  train = { batch_size = 2, seq_len = 512, max_steps = 50, grad_accum_steps = 1, grad_clip_norm = 1.0, seed = 42,
    compile_model = false, activation_checkpointing = "none" },
  optimizer = { name = "adamw", lr = 3e-4, weight_decay = 0.1, betas = { 0.9, 0.95 }, fused = false },
  scheduler = { name = "cosine", warmup_steps = 5, min_lr_ratio = 0.1 },
  data = { hf_dataset_name = "sayakpaul/coco-30-val-2014", hf_dataset_split = "train", hf_dataset_image_field = "image",
    hf_dataset_text_field = "caption", hf_image_size = 224, tokenizer_path = "gpt2", num_workers = 2, pin_memory = true },
  distributed = { dp_shard = -1 },
  checkpoint = { dir = "checkpoints/vlm_debug_moe", interval = 25, keep_last_n = 2 },
  metrics = { log_interval = 5, enable_wandb = false, enable_tensorboard = false },
}
