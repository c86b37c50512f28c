#include "AnimeGamerLink.h"
#include "Modules/ModuleManager.h"

DEFINE_LOG_CATEGORY(LogAnimeGamer);
IMPLEMENT_MODULE(FDefaultModuleImpl, AnimeGamer)
