#include "AnimeGamerSubsystem.h"

#include "AnimeGamerGame.h"
#include "AnimeGamerLink.h"
#include "AnimeGamerSettings.h"

namespace
{
FAnimeGamerWelcome ToWelcome(const ag_welcome& Said)
{
	FAnimeGamerWelcome Welcome;
	Welcome.Bundle = ToText(Said.bundle);
	Welcome.Width = Said.width;
	Welcome.Height = Said.height;
	Welcome.bStartsFromPictures = Said.picture != 0;
	Welcome.People = ToTexts(Said.people);
	Welcome.Motions = ToTexts(Said.motions);
	Welcome.Places = ToTexts(Said.places);
	Welcome.Hours = ToTexts(Said.hours);
	Welcome.Clothes = ToTexts(Said.clothes);
	Welcome.Manners = ToTexts(Said.manners);
	return Welcome;
}
}

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
	if (Connection.IsValid())
	{
		Connection->close(); // ends the client's thread, without waiting for the network; also within a tick
	}
	Connection.Reset();
	Super::Deinitialize();
}

UAnimeGamerGame* UAnimeGamerSubsystem::GetGame(FName Name)
{
	const TObjectPtr<UAnimeGamerGame>* const Found = Games.Find(Name);
	UAnimeGamerGame* const Game = Found != nullptr ? Found->Get() : NewObject<UAnimeGamerGame>(this);
	if (Found == nullptr)
	{
		Games.Add(Name, Game);
	}
	if (!Game->Link.IsValid() && Connect())
	{
		Game->Link = MakeShared<FAnimeGamerLink>(*Game, Connection, FString());
	}
	return Game;
}

// False: the settings are refused; RefusalCode and the log say so.
bool UAnimeGamerSubsystem::Connect()
{
	if (!Connection.IsValid())
	{
		const UAnimeGamerSettings& Settings = *GetDefault<UAnimeGamerSettings>();
		Connection = MakeShared<animegamer_unreal::Connection>(std::string(TCHAR_TO_UTF8(*Settings.Address)), Settings.TimeoutSeconds);
		const animegamer_unreal::Refusal Refusal = Connection->refusal();
		RefusalCode = ToText(Refusal.code);
		RefusalText = ToText(Refusal.text);
		RefusalWhatToDo = ToText(Refusal.what_to_do);
		if (!Connection->working())
		{
			UE_LOG(LogAnimeGamer, Error, TEXT("%s; %s"), *RefusalText, *RefusalWhatToDo);
			Connection.Reset();
			return false;
		}
		Connection->welcomed = [this](const ag_welcome& Said)
		{
			Welcome = ToWelcome(Said);
			OnConnected.Broadcast(Welcome);
		};
	}
	return true;
}

bool UAnimeGamerSubsystem::Tick(float)
{
	if (Connection.IsValid())
	{
		const TSharedPtr<animegamer_unreal::Connection> Now = Connection;
		Now->tick();
		TArray<TObjectPtr<UAnimeGamerGame>> All;
		Games.GenerateValueArray(All);
		for (const auto& Game : All)
		{
			Game->ShowPictures();
		}
	}
	return true;
}
