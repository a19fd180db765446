-- Public configurations of models (from each model's config.json or paper), for rows that give only
-- a name. A cell that the row states always wins. Patterns match the name in lower case, with
-- "-" for blanks and underscores. A row may have several patterns. The first row that matches counts. An entry without a shape
-- ends the search: no configuration of such a model is known. "%f[%d%.]2b" matches the size 2b, but not the end of 12b or 1.2b.

-- l, d: layers and width
-- h, kv, hd: heads, KV heads, and the width of a head
-- ff, v: the width of an MLP, and the vocabulary
-- e, k, me, sh: experts, experts that each token uses, the width of an expert, and the width of shared experts
-- first, every: the number of layers without experts at the start; n if every n-th layer has experts
-- mla: the sizes of DeepSeek's latent attention
-- both: the model has a decoder of the same shape, too
-- tied: embedding and head are one matrix. ties: the same, but the family's function in models.lua already shares it
-- hybrid, mh: the letters of a hybrid's layers, as Megatron writes them; heads of its Mamba mixers
-- lat: the width of the tokens that experts read; nil: the model's width
local mla3 = "q_lora=1536 kv_lora=512 qk_head=128 qk_pos=64 v_head=128"
local mla2 = "q_lora=0 kv_lora=512 qk_head=128 qk_pos=64 v_head=128"
-- kind: documented; config.json of each model, or its paper
local known = {
  -- The name of a distilled model also contains the name of its teacher (deepseek). These rows come first, so that it
  -- gets its own shape.
  { "distill.*llama.*%f[%d%.]8b", l = 32, d = 4096, h = 32, kv = 8, ff = 14336, v = 128256 },
  { "distill.*llama.*%f[%d%.]70b", l = 80, d = 8192, h = 64, kv = 8, ff = 28672, v = 128256 },
  { "distill.*qwen.*%f[%d%.]1%.5b", l = 28, d = 1536, h = 12, kv = 2, ff = 8960, v = 151936 },
  { "distill.*qwen.*%f[%d%.]7b", l = 28, d = 3584, h = 28, kv = 4, ff = 18944, v = 152064 },
  { "distill.*qwen.*%f[%d%.]14b", l = 48, d = 5120, h = 40, kv = 8, ff = 13824, v = 152064 },
  { "distill.*qwen.*%f[%d%.]32b", l = 64, d = 5120, h = 40, kv = 8, ff = 27648, v = 152064 },
  { "mistral.*minitron" }, { "minicpm.*moe" }, { "distill" }, { "deepseek.*llama" }, { "deepseek.*qwen" }, { "vision" }, { "multimodal" }, { "qwen3%-next" }, { "qwen3%.%d" },
  { "qwen[%d%.]*%-?vl" }, { "qwen.*omni" }, { "qwen.*audio" }, { "yi%-vl" }, { "glm%-?4%.5v" }, { "molmo" }, { "recurrentgemma" }, { "modernbert" },
  { "falcon%-?[hm]" }, { "granite%-?4" }, { "stablelm.*alpha" }, { "phi%-?4.*flash" }, { "mistral%-large%-3" }, { "command%-r7b" }, { "command%-r%-08" },
  { "deepseek[%-v]*[23].*%f[%d]16b", "deepseek[%-v]*2.*lite", "deepseek%-coder%-v2.*lite", l = 27, d = 2048, h = 16, kv = 16, ff = 10944, v = 102400, e = 64, k = 6, me = 1408, sh = 2816, first = 1, mla = mla2 },  -- also torchtitan's small variant of V3
  { "deepseek[%-v]*3.*lite" },
  { "moonlight", l = 27, d = 2048, h = 16, kv = 16, ff = 11264, v = 163840, e = 64, k = 6, me = 1408, sh = 2816, first = 1, mla = mla2 },
  { "deepseek%-coder%-v2", "deepseek[%-v]*2%f[^%db]", l = 60, d = 5120, h = 128, kv = 128, ff = 12288, v = 102400, e = 160, k = 6, me = 1536, sh = 3072, first = 1, mla = mla3 },
  { "deepseek[%-v]*3%f[^%db]", "deepseek%-?r%-?1%f[^%db]", l = 61, d = 7168, h = 128, kv = 128, ff = 18432, v = 129280, e = 256, k = 8, me = 2048, sh = 2048, first = 3, mla = mla3 },
  { "kimi.*k2", l = 61, d = 7168, h = 64, kv = 64, ff = 18432, v = 163840, e = 384, k = 8, me = 2048, sh = 2048, first = 1, mla = mla3 },
  { "gpt%-?oss.*%f[%d%.]120", l = 36, d = 2880, h = 64, kv = 8, ff = 2880, v = 201088, hd = 64, e = 128, k = 4, me = 2880 },
  { "gpt%-?oss", l = 24, d = 2880, h = 64, kv = 8, ff = 2880, v = 201088, hd = 64, e = 32, k = 4, me = 2880 },
  { "qwen3.*%f[%d%.]30b", l = 48, d = 2048, h = 32, kv = 4, ff = 6144, v = 151936, hd = 128, e = 128, k = 8, me = 768 },
  { "qwen3.*%f[%d%.]235b", l = 94, d = 4096, h = 64, kv = 4, ff = 12288, v = 151936, hd = 128, e = 128, k = 8, me = 1536 },
  { "qwen3.*%f[%d%.]0%.6b", l = 28, d = 1024, h = 16, kv = 8, ff = 3072, v = 151936, hd = 128, tied = true },
  { "qwen3.*%f[%d%.]1%.7b", l = 28, d = 2048, h = 16, kv = 8, ff = 6144, v = 151936, hd = 128, tied = true },
  { "qwen3.*%f[%d%.]14b", l = 40, d = 5120, h = 40, kv = 8, ff = 17408, v = 151936, hd = 128 },
  { "qwen3.*%f[%d%.]4b", l = 36, d = 2560, h = 32, kv = 8, ff = 9728, v = 151936, hd = 128, tied = true },
  { "qwen3.*%f[%d%.]8b", l = 36, d = 4096, h = 32, kv = 8, ff = 12288, v = 151936, hd = 128 },
  { "qwen3.*%f[%d%.]32b", l = 64, d = 5120, h = 64, kv = 8, ff = 25600, v = 151936, hd = 128 },
  { "qwen2%.?5?%-%a*%-?0%.5b", l = 24, d = 896, h = 14, kv = 2, ff = 4864, v = 151936, tied = true },
  { "qwen2%.?5?%-%a*%-?1%.5b", l = 28, d = 1536, h = 12, kv = 2, ff = 8960, v = 151936, tied = true },
  { "qwen2%.?5?%-%a*%-?3b", l = 36, d = 2048, h = 16, kv = 2, ff = 11008, v = 151936, tied = true },
  { "qwen2%.?5?%-%a*%-?7b", l = 28, d = 3584, h = 28, kv = 4, ff = 18944, v = 152064 },
  { "qwen2%.?5?%-%a*%-?14b", l = 48, d = 5120, h = 40, kv = 8, ff = 13824, v = 152064 },
  { "qwen2%.?5?%-%a*%-?32b", "qwq.*32b", l = 64, d = 5120, h = 40, kv = 8, ff = 27648, v = 152064 },
  { "qwen2%.?5?%-%a*%-?72b", l = 80, d = 8192, h = 64, kv = 8, ff = 29568, v = 152064 },
  { "qwen%-7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 151936 },
  { "glm%-?4%.5.*air", l = 46, d = 4096, h = 96, kv = 8, ff = 10944, v = 151552, hd = 128, e = 128, k = 8, me = 1408, sh = 1408, first = 1 },
  { "glm%-?4%.5", l = 92, d = 5120, h = 96, kv = 8, ff = 12288, v = 151552, hd = 128, e = 160, k = 8, me = 1536, sh = 1536, first = 3 },
  -- Hybrids of Mamba. Experts of Nemotron 3 Super and Ultra read a quarter of the width (moe-latent-size). 160 heads of 64 stand for
  -- the 128 heads of 80 of Nemotron Nano 2. A state of 128 stands for the state of 256 in the mixers of the 47B and the 56B.
  -- kind: documented; Megatron-LM d98e8a64: examples/post_training/modelopt/conf/nvidia; vocabulary of Nemotron Nano 2
  { "nemotron.*3.*nano", l = 52, d = 2688, h = 32, kv = 2, ff = 1856, v = 131072, hd = 128, e = 128, k = 6, me = 1856, sh = 3712, mh = 64,
    hybrid = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME" },
  { "nemotron.*3.*super", l = 88, d = 4096, h = 32, kv = 2, ff = 2688, v = 131072, hd = 128, e = 512, k = 22, me = 2688, sh = 5376, mh = 128, lat = 1024,
    hybrid = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME" },
  { "nemotron.*3.*ultra", l = 108, d = 8192, h = 64, kv = 2, ff = 5120, v = 131072, hd = 128, e = 512, k = 22, me = 5120, sh = 10240, mh = 256, lat = 2048,
    hybrid = "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME" },
  { "nemotron.*nano.*9b", l = 56, d = 4480, h = 40, kv = 8, ff = 15680, v = 131072, hd = 128, mh = 160,
    hybrid = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-" },
  { "nemotron.*%f[%d%.]56b", l = 118, d = 8192, h = 64, kv = 8, ff = 32768, v = 131072, hd = 128, mh = 256,
    hybrid = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-" },
  { "nemotron.*h.*%f[%d%.]47b", l = 98, d = 8192, h = 64, kv = 8, ff = 30720, v = 131072, hd = 128, mh = 256,
    hybrid = "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-" },
  { "nemotron.*h.*%f[%d%.]8b", l = 52, d = 4096, h = 32, kv = 8, ff = 21504, v = 131072, hd = 128, mh = 128,
    hybrid = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-" },
  -- kind: documented; config.json of each model, or its paper
  { "nemotron%-h" },
  { "nemotron.*%f[%d%.]15b", l = 32, d = 6144, h = 48, kv = 8, ff = 24576, v = 256000 },
  { "nemotron.*%f[%d%.]22b", l = 40, d = 6144, h = 48, kv = 48, ff = 24576, v = 256000 },
  { "nemotron.*%f[%d%.]340b", l = 96, d = 18432, h = 96, kv = 8, ff = 73728, v = 256000 },
  { "llama.*%f[%d%.]405b", l = 126, d = 16384, h = 128, kv = 8, ff = 53248, v = 128256 },
  { "llama.*%f[%d%.]3%.2.*%f[%d%.]1b", l = 16, d = 2048, h = 32, kv = 8, ff = 8192, v = 128256, tied = true },
  { "llama.*%f[%d%.]3%.2.*%f[%d%.]3b", l = 28, d = 3072, h = 24, kv = 8, ff = 8192, v = 128256, tied = true },
  { "llama%-?3.*%f[%d%.]70b", l = 80, d = 8192, h = 64, kv = 8, ff = 28672, v = 128256 },
  { "llama%-?3.*%f[%d%.]8b", "^llama%-8b", l = 32, d = 4096, h = 32, kv = 8, ff = 14336, v = 128256 },
  { "code%-?llama.*%f[%d%.]70b", l = 80, d = 8192, h = 64, kv = 8, ff = 28672, v = 32016 },
  { "code%-?llama.*%f[%d%.]13b", l = 40, d = 5120, h = 40, kv = 40, ff = 13824, v = 32016 },
  { "code%-?llama.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 32016 },
  { "llama.*%f[%d%.]70b", l = 80, d = 8192, h = 64, kv = 8, ff = 28672, v = 32000 },
  { "llama.*%f[%d%.]65b", l = 80, d = 8192, h = 64, kv = 64, ff = 22016, v = 32000 },
  { "code%-?llama.*%f[%d%.]34b", "llama%-?2.*%f[%d%.]34b", l = 48, d = 8192, h = 64, kv = 8, ff = 22016, v = 32000 },
  { "llama.*%f[%d%.]3[034]b", l = 60, d = 6656, h = 52, kv = 52, ff = 17920, v = 32000 },
  { "vicuna.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 32000 },
  { "vicuna.*%f[%d%.]13b", l = 40, d = 5120, h = 40, kv = 40, ff = 13824, v = 32000 },
  { "zephyr.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 8, ff = 14336, v = 32000 },
  { "skywork.*%f[%d%.]13b", l = 52, d = 4608, h = 36, kv = 36, ff = 12288, v = 65519 },
  { "minicpm.*%f[%d%.]2b", l = 40, d = 2304, h = 36, kv = 36, ff = 5760, v = 122753, tied = true },
  { "llama.*%f[%d%.]13b", l = 40, d = 5120, h = 40, kv = 40, ff = 13824, v = 32000 },
  { "llama.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 32000 },
  { "tiny%-?llama", l = 22, d = 2048, h = 32, kv = 4, ff = 5632, v = 32000 },
  { "llama%-?4.*scout", "llama%-?4.*17b.*16e", l = 48, d = 5120, h = 40, kv = 8, ff = 8192, v = 202048, e = 16, k = 1, me = 8192, sh = 8192 },
  { "llama%-?4.*maverick", "llama%-?4.*17b.*128e", l = 48, d = 5120, h = 40, kv = 8, ff = 16384, v = 202048, e = 128, k = 1, me = 8192, sh = 8192, every = 2 },
  { "mixtral.*%f[%d%.]8x22b", "mixtral.*%f[%d%.]1[47][16]b", l = 56, d = 6144, h = 48, kv = 8, ff = 16384, v = 32768, e = 8, k = 2, me = 16384 },
  { "mixtral.*%dx[1-689]%d*b" }, { "mixtral.*%dx7%d+b" }, { "mixtral.*%f[%d][1-79]x7b" },
  { "mixtral", l = 32, d = 4096, h = 32, kv = 8, ff = 14336, v = 32000, e = 8, k = 2, me = 14336 },
  { "mistral.*%f[%d%.]12b", "mistral.*nemo", l = 40, d = 5120, h = 32, kv = 8, ff = 14336, v = 131072, hd = 128 },
  { "mistral.*%f[%d%.]7b.*v0?%.?3", "mathstral", l = 32, d = 4096, h = 32, kv = 8, ff = 14336, v = 32768 },
  { "mistral.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 8, ff = 14336, v = 32000 },
  { "gemma%-?3%-.*%f[%d%.]27b", l = 62, d = 5376, h = 32, kv = 16, ff = 21504, v = 262208, hd = 128, tied = true },
  { "gemma%-?3%-.*%f[%d%.]12b", l = 48, d = 3840, h = 16, kv = 8, ff = 15360, v = 262208, hd = 256, tied = true },
  { "gemma%-?3%-.*%f[%d%.]4b", l = 34, d = 2560, h = 8, kv = 4, ff = 10240, v = 262208, hd = 256, tied = true },
  { "gemma%-?3%-.*%f[%d%.]1b", l = 26, d = 1152, h = 4, kv = 1, ff = 6912, v = 262144, hd = 256, tied = true },
  { "gemma%-?3" },
  { "gemma%-?2%-.*%f[%d%.]27b", l = 46, d = 4608, h = 32, kv = 16, ff = 36864, v = 256000, hd = 128, tied = true },
  { "gemma%-?2%-.*%f[%d%.]2b", l = 26, d = 2304, h = 8, kv = 4, ff = 9216, v = 256000, hd = 256, tied = true },
  { "gemma.*%f[%d%.]9b", l = 42, d = 3584, h = 16, kv = 8, ff = 14336, v = 256000, hd = 256, tied = true },
  { "gemma%-?7b", l = 28, d = 3072, h = 16, kv = 16, ff = 24576, v = 256000, hd = 256, tied = true },
  { "gemma%-?2b", l = 18, d = 2048, h = 8, kv = 1, ff = 16384, v = 256000, hd = 256, tied = true },
  { "phi%-?4%-mini", l = 32, d = 3072, h = 24, kv = 8, ff = 8192, v = 200064, tied = true },
  { "phi%-?4", l = 40, d = 5120, h = 40, kv = 10, ff = 17920, v = 100352 },
  { "phi%-?3.*medium", l = 40, d = 5120, h = 40, kv = 10, ff = 17920, v = 32064 },
  { "phi%-?2%f[%D]", l = 32, d = 2560, h = 32, kv = 32, ff = 10240, v = 51200 },
  { "phi%-?1%f[%D]", l = 24, d = 2048, h = 32, kv = 32, ff = 8192, v = 51200 },
  { "phi%-?3.*mini", l = 32, d = 3072, h = 32, kv = 32, ff = 8192, v = 32064 },
  { "internlm2.*%f[%d%.]20b", l = 48, d = 6144, h = 48, kv = 8, ff = 16384, v = 92544 },
  { "internlm2.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 8, ff = 14336, v = 92544 },
  { "internlm.*%f[%d%.]20b", l = 60, d = 5120, h = 40, kv = 40, ff = 13824, v = 103168 },
  { "internlm%-.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 103168 },
  { "baichuan2?.*%f[%d%.]13b", l = 40, d = 5120, h = 40, kv = 40, ff = 13696, v = 125696 },
  { "baichuan2?.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 125696 },
  { "starcoder2.*%f[%d%.]15b", l = 40, d = 6144, h = 48, kv = 4, ff = 24576, v = 49152 },
  { "starcoder2.*%f[%d%.]7b", l = 32, d = 4608, h = 36, kv = 4, ff = 18432, v = 49152 },
  { "starcoder2.*%f[%d%.]3b", l = 30, d = 3072, h = 24, kv = 2, ff = 12288, v = 49152 },
  { "granite.*%f[%d%.]8b", l = 40, d = 4096, h = 32, kv = 8, ff = 12800, v = 49152 },
  -- kind: documented; OLMo-core: nn/transformer/config.py (olmo2_7B is llama2_7B, olmo2_13B is llama2_13B); OLMo 1: LitGPT; OLMo 3: MaxText
  { "olmo%-?2.*%f[%d%.]32b", l = 64, d = 5120, h = 40, kv = 8, ff = 27648, v = 100352 },
  { "olmo%-?2.*%f[%d%.]13b", l = 40, d = 5120, h = 40, kv = 40, ff = 13824, v = 100352 },
  { "olmo%-?2.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 100352 },
  { "olmo%-?3.*%f[%d%.]32b", l = 64, d = 5120, h = 40, kv = 8, ff = 27648, v = 100278 },
  { "olmo%-?3.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 100278 },
  { "olmo%-?[23]" },
  { "olmo[^e].*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 50304 },
  { "olmo[^e].*%f[%d%.]1b", l = 16, d = 2048, h = 16, kv = 16, ff = 8192, v = 50304, tied = true },
  { "gpt%-?3%-%(mlperf", "gpt%-?3.*%f[%d%.]175b", l = 96, d = 12288, h = 96, kv = 96, ff = 49152, v = 51200 },  -- MLPerf's GPT-3 has 175 billion parameters
  { "gpt%-?3.*%f[%d%.]20b", l = 44, d = 6144, h = 48, kv = 48, ff = 24576, v = 51200 },
  -- kind: documented; Narayanan et al., arXiv 2104.04473, table 1; Korthikanti et al., arXiv 2205.05198, table 3
  { "^gpt%-[%d%.]+[bt].*moe" },
  { "^gpt%-?3?%-22b", "^megatron%-?l?m?%-?g?p?t?%-22b", l = 48, d = 6144, h = 64, kv = 64, ff = 24576, v = 51200, ties = true },
  { "^gpt%-175b", l = 96, d = 12288, h = 96, kv = 96, ff = 49152, v = 51200, ties = true },
  { "^gpt%-?3?%-530b", "^megatron%-?l?m?%-?g?p?t?%-530b", l = 105, d = 20480, h = 128, kv = 128, ff = 81920, v = 51200, ties = true },
  { "^gpt%-?3?%-1t", "^gpt%-?3?%-100[08]b", "^megatron%-?l?m?%-?g?p?t?%-1t", l = 128, d = 25600, h = 160, kv = 160, ff = 102400, v = 51200, ties = true },
  { "^gpt%-?3?%-3%.6b", l = 30, d = 3072, h = 32, kv = 32, ff = 12288, v = 51200, ties = true },
  { "^gpt%-?3?%-7%.5b", l = 36, d = 4096, h = 32, kv = 32, ff = 16384, v = 51200, ties = true },
  { "^gpt%-?3?%-18%.?4?b", l = 40, d = 6144, h = 48, kv = 48, ff = 24576, v = 51200, ties = true },
  { "^gpt%-?3?%-39%.?1?b", l = 48, d = 8192, h = 64, kv = 64, ff = 32768, v = 51200, ties = true },
  { "^gpt%-?3?%-76%.?1?b", l = 60, d = 10240, h = 80, kv = 80, ff = 40960, v = 51200, ties = true },
  { "^gpt%-?3?%-145%.?6?b", l = 80, d = 12288, h = 96, kv = 96, ff = 49152, v = 51200, ties = true },
  { "^gpt%-?3?%-310%.?1?b", l = 96, d = 16384, h = 128, kv = 128, ff = 65536, v = 51200, ties = true },
  { "gpt%-?3.*%f[%d%.]5b", l = 24, d = 4096, h = 32, kv = 32, ff = 16384, v = 51200 },
  -- kind: source; alpa 0f0b908: benchmark/alpa/suite_manual_gpt.py
  { "^gpt%-?3?%-2%.6b", l = 32, d = 2560, h = 32, kv = 32, ff = 10240, v = 51200, ties = true },
  -- kind: source; GLM-130B 2cbe915: configs/model_glm_130b.sh
  { "glm%-130b", l = 70, d = 12288, h = 96, kv = 96, ff = 32768, v = 150528 },
  -- kind: documented; Pai-Megatron-Patch a098ca5: examples/qwen, qwen1_5 and qwen2 (model sizes of the launch scripts)
  { "qwen1%.5.*moe", l = 24, d = 2048, h = 16, kv = 16, ff = 5632, v = 151936, e = 60, k = 4, me = 1408, sh = 5632 },
  { "qwen2.*57b", l = 28, d = 3584, h = 28, kv = 4, ff = 18944, v = 151936, e = 64, k = 8, me = 2560, sh = 20480 },
  { "qwen1%.5.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 151936 },
  { "qwen1?%.?5?%-14b", l = 40, d = 5120, h = 40, kv = 40, ff = 13696, v = 152064 },
  { "qwen1%.5.*%f[%d%.]32b", l = 64, d = 5120, h = 40, kv = 8, ff = 27392, v = 152064 },
  { "qwen1?%.?5?%-72b", l = 80, d = 8192, h = 64, kv = 64, ff = 24576, v = 152064 },
  -- kind: documented; mlc-llm 79d603f0: python/mlc_llm/model/model_preset.py, which quotes each config.json
  { "deepseek.*moe.*16b", l = 28, d = 2048, h = 16, kv = 16, ff = 10944, v = 102400, e = 64, k = 6, me = 1408, sh = 2816, first = 1 },
  { "gpt%-?j", l = 28, d = 4096, h = 16, kv = 16, ff = 16384, v = 50400 },
  { "smollm.*1%.7b", l = 24, d = 2048, h = 32, kv = 32, ff = 8192, v = 49152, tied = true },
  { "smollm.*360m", l = 32, d = 960, h = 15, kv = 5, ff = 2560, v = 49152, tied = true },
  { "smollm.*135m", l = 30, d = 576, h = 9, kv = 3, ff = 1536, v = 49152, tied = true },
  { "chatglm[23]", l = 28, d = 4096, h = 32, kv = 2, ff = 13696, v = 65024 },
  -- kind: documented; GenZ-LLM-Analyzer 091bdd0: GenZ/Models/Model_sets/mistral.py and misc.py, from each config.json
  { "ministral.*%f[%d%.]8b", l = 36, d = 4096, h = 32, kv = 8, ff = 12288, v = 131072, hd = 128 },
  { "mistral.*%f[%d%.]22b", l = 56, d = 6144, h = 48, kv = 8, ff = 16384, v = 32768 },
  { "dbrx", l = 40, d = 6144, h = 48, kv = 8, ff = 10752, v = 100352, e = 16, k = 4, me = 10752 },
  -- kind: documented; Megatron-Bridge v0.2.0: src/megatron/bridge/models (mistral, olmoe, llama and nemotron providers)
  { "mistral.*%f[%d%.]24b", l = 40, d = 5120, h = 32, kv = 8, ff = 32768, v = 131072, hd = 128 },
  { "olmoe", l = 16, d = 2048, h = 16, kv = 16, ff = 1024, v = 50304, e = 64, k = 8, me = 1024 },
  { "minitron.*%f[%d%.]4b", l = 32, d = 3072, h = 24, kv = 8, ff = 9216, v = 256000, hd = 128 },
  -- kind: documented; litgpt 26857050: litgpt/config.py
  { "mistral%-large", "mistral.*%f[%d%.]12[34]b", l = 88, d = 12288, h = 96, kv = 8, ff = 28672, v = 32768 },
  { "falcon%-?3.*%f[%d%.]1b", l = 18, d = 2048, h = 8, kv = 4, ff = 8192, v = 131072, hd = 256, gated = true },
  { "falcon%-?3.*%f[%d%.]3b", l = 22, d = 3072, h = 12, kv = 4, ff = 9216, v = 131072, hd = 256, gated = true },
  { "falcon%-?3.*%f[%d%.]7b", l = 28, d = 3072, h = 12, kv = 4, ff = 23040, v = 131072, hd = 256, gated = true },
  { "falcon%-?3.*%f[%d%.]10b", l = 40, d = 3072, h = 12, kv = 4, ff = 23040, v = 131072, hd = 256, gated = true },
  { "falcon%-?3" },
  { "falcon.*%f[%d%.]180b", l = 80, d = 14848, h = 232, kv = 8, ff = 59392, v = 65024, tied = true },
  { "falcon.*%f[%d%.]40b", l = 60, d = 8192, h = 128, kv = 8, ff = 32768, v = 65024, tied = true },
  { "falcon.*%f[%d%.]7b", l = 32, d = 4544, h = 71, kv = 1, ff = 18176, v = 65024, tied = true },
  -- kind: documented; transformers: src/transformers/models/{smollm3,glm,cohere,gpt_neox}, defaults of the configuration classes
  { "smollm3", l = 36, d = 2048, h = 16, kv = 4, ff = 11008, v = 128256, tied = true },
  { "glm%-?4.*%f[%d%.]9b", l = 40, d = 4096, h = 32, kv = 2, ff = 13696, v = 151552 },
  { "command%-r%+" }, { "command%-r%-plus" },
  { "command%-r", l = 40, d = 8192, h = 64, kv = 64, ff = 22528, v = 256000, tied = true },
  { "neox.*20b", l = 44, d = 6144, h = 64, kv = 64, ff = 24576, v = 50432 },
  -- kind: documented; InternEvo c628a8c: configs/_base_/models/internlm2_1B.py
  { "internlm2.*1[%._]8b", l = 24, d = 2048, h = 16, kv = 8, ff = 8192, v = 92544 },
  -- kind: documented; InternEvo-HFModels: huggingface_model/yi/yi_6B/configuration_yi.py
  { "yi.*%f[%d%.]6b", l = 32, d = 4096, h = 32, kv = 4, ff = 11008, v = 64000 },
  -- kind: documented; FlagScale da4935ec: examples/aquila/conf/train (widths of the MLP from hidden_dim_multiplier, multiple_of)
  { "aquila2?.*%f[%d%.]7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 100008 },
  { "aquila2?.*%f[%d%.]34b", l = 60, d = 6144, h = 48, kv = 8, ff = 24576, v = 100008 },
  { "aquila2?.*%f[%d%.]70b", l = 80, d = 8192, h = 64, kv = 8, ff = 28672, v = 100008 },
  -- kind: documented; grok-1 7050ed2: run.py and model.py (ffn_size; InOutEmbed also decodes)
  { "grok%-?1", l = 64, d = 6144, h = 48, kv = 8, ff = 32768, v = 131072, e = 8, k = 2, me = 32768, tied = true },
  -- kind: documented; bigscience: train/tr11-176B-ml/tr11-176B-ml.slurm; its 7B from llm-analysis d841e40 (model_configs)
  { "bloom.*%f[%d%.]7[b%.]", l = 30, d = 4096, h = 32, kv = 32, ff = 16384, v = 250880, tied = true },
  -- kind: documented; llm-analysis d841e40: model_configs
  { "bloom.*560m", l = 24, d = 1024, h = 16, kv = 16, ff = 4096, v = 250880, tied = true },
  -- kind: documented; bigscience: train/tr11-176B-ml/tr11-176B-ml.slurm
  { "bloom.*17[56]b", "bloomz?$", l = 70, d = 14336, h = 112, kv = 112, ff = 57344, v = 250880, tied = true },
  -- kind: documented; metaseq f7ffa5f: metaseq/launcher/opt_job_constants.py; the vocabulary from llm-analysis d841e40
  { "opt%-66b", l = 64, d = 9216, h = 72, kv = 72, ff = 36864, v = 50272, ties = true },
  { "opt%-30b", l = 48, d = 7168, h = 56, kv = 56, ff = 28672, v = 50272, ties = true },
  { "opt%-13b", l = 40, d = 5120, h = 40, kv = 40, ff = 20480, v = 50272, ties = true },
  { "opt%-6%.7b", l = 32, d = 4096, h = 32, kv = 32, ff = 16384, v = 50272, ties = true },
  { "opt%-2%.7b", l = 32, d = 2560, h = 32, kv = 32, ff = 10240, v = 50272, ties = true },
  { "opt%-1%.3b", l = 24, d = 2048, h = 32, kv = 32, ff = 8192, v = 50272, ties = true },
  -- kind: documented; llm-analysis d841e40: model_configs (opt, mt-nlg, gpt-neo)
  { "opt%-175b", l = 96, d = 12288, h = 96, kv = 96, ff = 49152, v = 50272, ties = true },
  { "opt%-350m", l = 24, d = 1024, h = 16, kv = 16, ff = 4096, v = 50272, ties = true },
  { "opt%-125m", l = 12, d = 768, h = 12, kv = 12, ff = 3072, v = 50272, ties = true },
  { "turing.*530b", "mt%-nlg", l = 105, d = 20480, h = 128, kv = 128, ff = 81920, v = 50257, ties = true },
  { "gpt%-?neo%-.*1%.3b", l = 24, d = 2048, h = 16, kv = 16, ff = 8192, v = 50257, ties = true },
  { "gpt%-?neo%-.*2%.7b", l = 32, d = 2560, h = 20, kv = 20, ff = 10240, v = 50257, ties = true },
  -- kind: documented; GPT-NeoX: configs (125M, 350M, 760M, 1-3B, 2-7B, 6-7B, 13B)
  { "gpt%-?3.*%f[%d%.]13b", "^gpt%-13b", l = 40, d = 5120, h = 40, kv = 40, ff = 20480, v = 50257, ties = true },
  { "gpt%-?3.*%f[%d%.]6%.7b", "^gpt%-6%.7b", l = 32, d = 4096, h = 32, kv = 32, ff = 16384, v = 50257, ties = true },
  { "gpt%-?3.*%f[%d%.]2%.7b", "^gpt%-2%.7b", l = 32, d = 2560, h = 32, kv = 32, ff = 10240, v = 50257, ties = true },
  { "gpt%-?3.*%f[%d%.]1%.3b", "^gpt%-1%.3b", l = 24, d = 2048, h = 16, kv = 16, ff = 8192, v = 50257, ties = true },
  { "gpt%-?3.*760m", l = 24, d = 1536, h = 16, kv = 16, ff = 6144, v = 50257, ties = true },
  { "gpt%-?3.*350m", l = 24, d = 1024, h = 16, kv = 16, ff = 4096, v = 50257, ties = true },
  { "gpt%-?3.*125m", l = 12, d = 768, h = 12, kv = 12, ff = 3072, v = 50257, ties = true },
  -- kind: documented; llm-foundry 8c8dd48f: scripts/train/yamls/pretrain
  { "mpt%-70b", l = 80, d = 8192, h = 64, kv = 64, ff = 32768, v = 50368, ties = true },
  { "mpt%-13b", l = 40, d = 5120, h = 40, kv = 40, ff = 20480, v = 50368, ties = true },
  { "mpt%-3b", l = 32, d = 2560, h = 20, kv = 20, ff = 10240, v = 50368, ties = true },
  { "mpt%-1b", l = 24, d = 2048, h = 16, kv = 16, ff = 8192, v = 50368, ties = true },
  { "mpt%-760m", l = 24, d = 1536, h = 12, kv = 12, ff = 6144, v = 50368, ties = true },
  { "mpt%-350m", l = 24, d = 1024, h = 16, kv = 16, ff = 4096, v = 50368, ties = true },
  { "mpt%-125m", l = 12, d = 768, h = 12, kv = 12, ff = 3072, v = 50368, ties = true },
  { "mpt%-30b", l = 48, d = 7168, h = 56, kv = 56, ff = 28672, v = 50368, ties = true },
  { "mpt%-7b", l = 32, d = 4096, h = 32, kv = 32, ff = 16384, v = 50368, ties = true },
  -- kind: documented; Shoeybi et al., arXiv 1909.08053, table 1; Microsoft's page of Turing-NLG
  { "^gpt%-?345m", l = 24, d = 1024, h = 16, kv = 16, ff = 4096, v = 50257, ties = true },
  { "^gpt%-?2?%-?8%.3b", "^megatron.*8%.3b", l = 72, d = 3072, h = 32, kv = 32, ff = 12288, v = 50257, ties = true },
  { "^gpt%-?2?%-?4%.2b", l = 64, d = 2304, h = 24, kv = 24, ff = 9216, v = 50257, ties = true },
  { "turing.*17b", l = 78, d = 4256, h = 28, kv = 28, ff = 17024, v = 50257, ties = true },
  -- kind: documented; config.json of each T5
  { "^t5%-small", l = 6, d = 512, h = 8, kv = 8, ff = 2048, v = 32128, hd = 64, both = true, tied = true },
  { "^t5%-base", l = 12, d = 768, h = 12, kv = 12, ff = 3072, v = 32128, hd = 64, both = true, tied = true },
  { "^t5%-large", l = 24, d = 1024, h = 16, kv = 16, ff = 4096, v = 32128, hd = 64, both = true, tied = true },
  { "^t5%-3b", l = 24, d = 1024, h = 32, kv = 32, ff = 16384, v = 32128, hd = 128, both = true, tied = true },
  { "^t5%-11b", l = 24, d = 1024, h = 128, kv = 128, ff = 65536, v = 32128, hd = 128, both = true, tied = true },
  -- kind: documented; nanoGPT 3adf61e: model.py (from_pretrained)
  { "gpt%-?2.*xl", "gpt%-?2.*1[%.p]?5%d*[bm]", l = 48, d = 1600, h = 25, kv = 25, ff = 6400, v = 50257, ties = true },
  { "gpt%-?2.*large", "gpt%-?2.*774m", l = 36, d = 1280, h = 20, kv = 20, ff = 5120, v = 50257, ties = true },
  { "gpt%-?2.*medium", "gpt%-?2.*3[45]5m", l = 24, d = 1024, h = 16, kv = 16, ff = 4096, v = 50257, ties = true },
  { "gpt%-?2.*small", "gpt%-?2.*1[12][74]m", "gpt%-?2$", l = 12, d = 768, h = 12, kv = 12, ff = 3072, v = 50257, ties = true },
  -- kind: documented; LitGPT: config.py, which quotes each config.json
  { "pythia.*%f[%d%.]12b", l = 36, d = 5120, h = 40, kv = 40, ff = 20480, v = 50688 },
  { "pythia.*%f[%d%.]6%.9b", l = 32, d = 4096, h = 32, kv = 32, ff = 16384, v = 50432 },
  { "pythia.*%f[%d%.]2%.8b", l = 32, d = 2560, h = 32, kv = 32, ff = 10240, v = 50304 },
  { "pythia.*%f[%d%.]1%.4b", l = 24, d = 2048, h = 16, kv = 16, ff = 8192, v = 50304 },
  { "pythia.*%f[%d%.]1b", l = 16, d = 2048, h = 8, kv = 8, ff = 8192, v = 50304 },
  { "pythia.*410m", l = 24, d = 1024, h = 16, kv = 16, ff = 4096, v = 50304 },
  { "pythia.*%f[%d]70m", l = 6, d = 512, h = 8, kv = 8, ff = 2048, v = 50304 },
  { "pythia.*160m", l = 12, d = 768, h = 12, kv = 12, ff = 3072, v = 50304 },
  { "open%-?_?llama.*%f[%d%.]3b", l = 26, d = 3200, h = 32, kv = 32, ff = 8640, v = 32000 },
  { "stablelm%-2.*1[%._]6b", l = 24, d = 2048, h = 32, kv = 32, ff = 5632, v = 100352 },
  { "stablelm.*%f[%d%.]3b", l = 32, d = 2560, h = 32, kv = 32, ff = 6912, v = 50304 },
  { "salamandra.*2b", l = 24, d = 2048, h = 16, kv = 16, ff = 5440, v = 256000 },
  { "salamandra.*7b", l = 32, d = 4096, h = 32, kv = 8, ff = 11008, v = 256000 },
  -- kind: documented; mlc-llm 79d603f0: python/mlc_llm/model/model_preset.py, which quotes each config.json
  { "aya%-?23.*8b", l = 32, d = 4096, h = 32, kv = 8, ff = 14336, v = 256000, tied = true },
  { "redpajama.*3b", l = 32, d = 2560, h = 32, kv = 32, ff = 10240, v = 50432 },
  { "qwen1?%.?5?%-1[%._]8b", l = 24, d = 2048, h = 16, kv = 16, ff = 5504, v = 151936 },
  -- kind: documented; MaxText e591f30cb: src/maxtext/configs/models (qwen3-480b-a35b.yml, gpt3-22b.yml, gpt3-6b.yml)
  { "qwen3.*480b", l = 62, d = 6144, h = 96, kv = 8, ff = 8192, v = 151936, hd = 128, e = 160, k = 8, me = 2560 },
  -- kind: documented; NeMo 8cfedd72: nemo/collections/llm/gpt/model (nemotron.py, starcoder.py)
  { "nemotron%-?3?%-8b", l = 32, d = 4096, h = 32, kv = 32, ff = 16384, v = 256000 },
  { "starcoder%-?b?a?s?e?%-?15%.?5?b", "starcoder$", l = 40, d = 6144, h = 48, kv = 1, ff = 24576, v = 49152 },
  -- kind: documented; transformers: src/transformers/models/phimoe, defaults of the configuration class, which names this model
  { "phi%-?3%.5%-moe", l = 32, d = 4096, h = 32, kv = 8, ff = 6400, v = 32064, e = 16, k = 2, me = 6400 },
  -- kind: documented; NeMo 8cfedd72: nemo/collections/llm/bert/model (bert.py, base.py); the vocabulary from llm-analysis d841e40
  { "bert%-%(mlperf", "bert.*large", l = 24, d = 1024, h = 16, kv = 16, ff = 4096, v = 30522, tied = true },  -- MLPerf's BERT is BERT large
  { "bert.*base", l = 12, d = 768, h = 12, kv = 12, ff = 3072, v = 30522, tied = true },
}

-- Shapes written from memory. We found no source to compare them with. A row that takes one says so in the report.
-- kind: assumed; no source was found
local unread = {
  { "deepseek.*coder.*%f[%d%.]33b", l = 62, d = 7168, h = 56, kv = 8, ff = 19200, v = 32256 },
  { "deepseek.*coder.*%f[%d%.]6%.7b", l = 32, d = 4096, h = 32, kv = 32, ff = 11008, v = 32256 },
  -- Some tables that quote config.json agree with the next three shapes, but we could not name their repositories.
  { "deepseek.*%f[%d%.]67b", l = 95, d = 8192, h = 64, kv = 8, ff = 22016, v = 102400 },
  { "deepseek.*%f[%d%.]7b", l = 30, d = 4096, h = 32, kv = 32, ff = 11008, v = 102400 },
  { "yi.*%f[%d%.]34b", l = 60, d = 7168, h = 56, kv = 8, ff = 20480, v = 64000 },
  { "yi.*%f[%d%.]9b", l = 48, d = 4096, h = 32, kv = 4, ff = 11008, v = 64000 },
  { "qwen1%.5.*%f[%d%.]0%.5b", l = 24, d = 1024, h = 16, kv = 16, ff = 2816, v = 151936, tied = true },
  { "qwen1%.5.*%f[%d%.]4b", l = 40, d = 2560, h = 20, kv = 20, ff = 6912, v = 151936 },
  { "qwen1%.5.*%f[%d%.]110b", l = 80, d = 8192, h = 64, kv = 8, ff = 49152, v = 152064 },
  { "bloom.*%f[%d%.]3b", l = 30, d = 2560, h = 32, kv = 32, ff = 10240, v = 250880, tied = true },
  { "bloom.*%f[%d%.]1[%.b]7", l = 24, d = 2048, h = 16, kv = 16, ff = 8192, v = 250880, tied = true },
  { "bloom.*%f[%d%.]1[%.b]1", l = 24, d = 1536, h = 16, kv = 16, ff = 6144, v = 250880, tied = true },
  { "minitron.*%f[%d%.]8b", l = 32, d = 4096, h = 48, kv = 8, ff = 16384, v = 256000, hd = 128 },
}

-- Vocabularies of tokenizers, for rows in which only the vocabulary is open. The first pattern matches the
-- model's name, and `of` matches the cell vocab_from. MLPerf's 405B uses the tokenizer of Mixtral 8x22B.
-- MLPerf's GPT-3 and the tokenizer of GPT-2 have 50,257 entries (the benchmark's README). Megatron's T5 has
-- BERT's cased vocabulary and 100 sentinels. BERT's lower-case vocabulary has 30,522 entries.
local vocabularies = {
  { "", of = "mixtral 8x22b", v = 32768 }, { "bert", of = "%f[%a]cased%-vocab", v = 28996 }, { "t5", v = 28996 + 100 }, { "bert", v = 30522 },
  { "gpt", v = 50257 }, { "opt", v = 50272 }, { "mpt", v = 50432 }, { "bloom", v = 250880 },
}

local column = { l = "n_layers", d = "d_model", h = "n_heads", kv = "n_kv_heads", ff = "d_ff", v = "vocab" }
local options = { hd = "head_dim", e = "moe_experts", k = "moe_topk", me = "moe_ffn", sh = "moe_shared_ffn", mla = "mla", hybrid = "hybrid_pattern", mh = "mamba_heads", lat = "moe_latent" }

local m = { columns = column, options = options }

local function first_of(list, plain)
  for _, entry in ipairs(list) do
    for _, pattern in ipairs(entry) do if plain:find(pattern) then return entry end end
  end
  return nil
end

-- Returns true if a name says that the model has experts: "8x8b", "moe", "30b-a3b", "e8t2".
function m.names_experts(name)
  local plain = name:lower()
  return plain:find "%f[%d]%d+%s*x%s*%d+%.?%d*%s*[bm]%f[%A]" ~= nil or plain:find "%f[%a]moe%f[%A]" ~= nil or plain:find "%d%.?%d*b[%s_%-]*a%d+%.?%d*b" ~= nil or
    plain:find "%f[%a]e%d+t%d+%f[^%w]" ~= nil or plain:find "mixture of experts" ~= nil
end

-- Returns true if a name says that the model is a small version of the one that it names: "proxy", "reduced". No public configuration
-- has these words, but for models with a row of their own.
function m.names_part(name)
  for _, word in ipairs { "proxy", "reduced", "scaled%-?%s?down", "shrunk", "truncated", "toy", "debug", "mini%-?version", "slim" } do
    if name:lower():find("%f[%a]" .. word .. "%f[%A]") then return true end
  end
  return false
end

-- Returns the configuration of the model with this name, and a text that names its source. Returns
-- nil if the model is unknown.
function m.find(name)
  local plain = name:lower():gsub("[%s_]", "-"):gsub("×", "x"):gsub("(%d)%-?x%-?(%d)", "%1x%2"):gsub("^dsv([23])", "deepseek-v%1")
  plain = plain:gsub("qwen%-(%d%.%d)%-", "qwen%1-"):gsub("qwen%-([23])%-", "qwen%1-")
  local entry = first_of(known, plain)
  if entry then return entry.l and entry or nil, "the model's public configuration" end
  return first_of(unread, plain), "a shape of the model that was compared with no source"
end

-- Families whose MLP has no gate, so it has two matrices.
local ungated = { "turing", "mt%-nlg", "pythia", "phi%-?2", "phi%-?1", "nemotron", "minitron", "starcoder", "gpt%-?3", "gpt%-?2", "gpt%-?j", "^gpt", "^megatron", "gpt%-?neo%-", "redpajama", "neox", "falcon", "bloom", "opt%-", "mpt%-", "bert" }
local function matrices_of(entry)
  if entry.gated then return 3 end
  for _, name in ipairs(ungated) do
    if entry[1]:find(name, 1, true) then return 2 end
  end
  return 3
end

-- Returns the parameters of a layer's attention.
function m.attention(entry)
  local dim, head = entry.d, entry.hd or entry.d // entry.h
  if not entry.mla then return 2 * dim * head * (entry.h + entry.kv) end
  local function width(key) return tonumber(entry.mla:match(key .. "=(%d+)")) end
  local q, rank, nope, rope, value = width "q_lora", width "kv_lora", width "qk_head", width "qk_pos", width "v_head"
  local queries = entry.h * (nope + rope)
  return (q > 0 and q * (dim + queries) or dim * queries) + dim * (rank + rope) + rank * entry.h * (nope + value) + entry.h * value * dim
end

-- Returns the number of parameters of a configuration, without norms and biases; nil: the model is a hybrid,
-- or has an encoder and a decoder, which are not counted here.
function m.parameters(entry)
  if entry.hybrid or entry.both then return nil end
  local dim = entry.d
  local experts = entry.e and (entry.l - (entry.first or 0)) // (entry.every or 1) or 0
  local each = entry.e and entry.e * entry.me + (entry.sh or 0) or 0
  return ((entry.tied or entry.ties) and 1 or 2) * entry.v * dim + entry.l * m.attention(entry) +
    matrices_of(entry) * dim * ((entry.l - experts) * entry.ff + experts * each)
end

-- Returns the vocabulary that the name of the model or of its tokenizer implies, and a text that
-- names its source. Returns nil if neither is known.
function m.vocabulary(name, from)
  local entry, where = m.find(name)
  for _, known_one in ipairs(vocabularies) do
    if known_one.of and name:lower():find(known_one[1]) and from:lower():find(known_one.of) then return known_one.v, "the vocabulary of its tokenizer" end
  end
  if entry then return entry.v, where end
  for _, known_one in ipairs(vocabularies) do
    if not known_one.of and name:lower():find(known_one[1]) then return known_one.v, "the vocabulary of its tokenizer" end
  end
  return nil, "no tokenizer is named"
end

return m
