#include "AnimeGamerSubsystem.h"

#include "AnimeGamerGame.h"
#include "AnimeGamerLink.h"
#include "AnimeGamerSettings.h"

DEFINE_LOG_CATEGORY_STATIC(LogAnimeGamer, Log, All);

void UAnimeGamerSubsystem::Initialize(FSubsystemCollectionBase& Collection)
{
	Super::Initialize(Collection);
	// A ticker of the engine, not of a world: it also runs while a game is paused and between levels, so pings are answered.
	Ticker = FTSTicker::GetCoreTicker().AddTicker(FTickerDelegate::CreateUObject(this, &UAnimeGamerSubsystem::Tick));
}

void UAnimeGamerSubsystem::Deinitialize()
{
	FTSTicker::GetCoreTicker().RemoveTicker(Ticker);
	for (auto& Entry : Games)
	{
		Entry.Value->Link.Reset();
	}
	Games.Empty();
	Connection.Reset(); // ends the client's thread, without waiting for the network
	Super::Deinitialize();
}

UAnimeGamerGame* UAnimeGamerSubsystem::GetGame(FName Name)
{
	if (const TObjectPtr<UAnimeGamerGame>* const Found = Games.Find(Name))
	{
		return Found->Get();
	}
	if (!Connection.IsValid())
	{
		const UAnimeGamerSettings* const Settings = GetDefault<UAnimeGamerSettings>();
		Connection = MakeShared<FAnimeGamerConnection>(Settings->Address, Settings->TimeoutSeconds);
		if (!Connection->Core.working())
		{
			UE_LOG(LogAnimeGamer, Error, TEXT("%s"), UTF8_TO_TCHAR(Connection->Core.error().c_str()));
			Connection.Reset();
			return nullptr;
		}
	}
	UAnimeGamerGame* const Game = NewObject<UAnimeGamerGame>(this);
	Games.Add(Name, Game);
	Game->Link = MakeShared<FAnimeGamerLink>(*Game, Connection, FString());
	return Game;
}

bool UAnimeGamerSubsystem::Tick(float)
{
	if (Connection.IsValid())
	{
		const TSharedPtr<FAnimeGamerConnection> Now = Connection;
		Now->Core.tick();
		TArray<TObjectPtr<UAnimeGamerGame>> All;
		Games.GenerateValueArray(All);
		for (const auto& Game : All)
		{
			Game->ShowPictures();
		}
	}
	return true;
}
