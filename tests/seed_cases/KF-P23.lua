-- expect: ok ranks 4 | parameters 9358495744
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 4096, n_layers = 32, n_heads = 32, n_kv_heads = 8, vocab_size = 50257, ffn_dim_multiplier = 1.3,
    norm_type = "rmsnorm", activation = "silu", max_seq_len = 1024, rope_theta = 500000.0, tie_embeddings = false },
  vision_encoder = { type = "random", feature_dim = 1024, num_tokens = 256 },
  vlm = { arch = "cross_attention" },
  train = { batch_size = 16, seq_len = 512, max_steps = 15, grad_accum_steps = 1, grad_clip_norm = 1.0, seed = 42,
    compile_model = false, activation_checkpointing = "none", loss_fn = "cross_entropy" },
  optimizer = { name = "adamw", lr = 1e-4, weight_decay = 0.1, betas = { 0.9, 0.95 }, eps = 1e-8, fused = true },
  scheduler = { name = "cosine", warmup_steps = 3, min_lr_ratio = 0.1 },
  data = { hf_dataset_name = "sayakpaul/coco-30-val-2014", hf_dataset_split = "train", hf_dataset_image_field = "image",
    hf_dataset_text_field = "caption", hf_image_size = 224, tokenizer_path = "gpt2", num_workers = 2, pin_memory = true,
    prefetch_factor = 2 },
  distributed = { dp_shard = -1, nccl_timeout_sec = 600 },
  checkpoint = { dir = "checkpoints/vlm_7b_cross_attn", interval = 1000, keep_last_n = 1 },
  metrics = { log_interval = 1, enable_wandb = false, enable_tensorboard = false },
}
